package blueprint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

func compareText(a, b string) int { return cmp.Compare(a, b) }

// judge completes a rendering with what depends on other objects: references, names that others hold, what the tailnet's
// facts forbid, certificates and routes.
func (c *Compilation) judge(r *rendering) *Ingress {
	out := r.out
	out.Hosts, out.Tags = slices.Clone(r.out.Hosts), slices.Clone(r.out.Tags)
	out.Endpoints = make(map[string]Endpoint, len(r.out.Endpoints))
	for name, endpoint := range r.out.Endpoints {
		endpoint.DNSAliases = slices.Clone(endpoint.DNSAliases)
		out.Endpoints[name] = endpoint
	}
	if g := r.out.Grant; g != nil {
		out.Grant = &Grant{Src: slices.Clone(g.Src), Dst: slices.Clone(g.Dst), IP: slices.Clone(g.IP)}
	}
	out.Problems = slices.Clone(r.out.Problems)
	out.Problems = append(out.Problems, c.missing(r.in.References(), r.ending)...)
	out.Routes = map[string]string{}
	withheld := c.conflicts(r, &out)
	if t := c.tailnet(r.in.Tailnet); t != nil {
		if refused := c.principals(r, t); len(refused) > 0 {
			// A grant that may not be given, or that would have the whole document refused, is left out whole.
			out.Problems, out.Grant = append(out.Problems, refused...), nil
		}
		out.Problems = append(out.Problems, c.zone(r, t)...)
		if !r.ending {
			c.certificates(r, t, &out, withheld)
		}
	}
	for host, expose := range r.exposeOf {
		if !withheld[host] && !r.ending {
			out.Routes[host] = expose
		}
	}
	out.Withdrawn = !c.runs(r)
	return &out
}

// runs reports whether the ingress has an identity that is its own. A fault of one expose, of the certificates or of the access
// leaves the rest running.
func (c *Compilation) runs(r *rendering) bool {
	if r.out.Hostname == "" || r.out.Tag == "" || !desired.Known(r.out.Hostname+r.out.Tag) {
		return false // no tailnet, or no identity
	}
	if slices.ContainsFunc(r.out.Problems, func(p Problem) bool { return p.Reason == desired.ReasonTagConflict }) {
		return false
	}
	claims := c.claims[r.in.Tailnet]
	return claims == nil || !slices.ContainsFunc(r.claims, func(id string) bool {
		return !strings.HasPrefix(id, claimID(ClassDNS, "")) && claims.holder(id, r.out.Key) != nil
	})
}

// conflicts finds the names that older claims hold (N6) and answers with the DNS names among them.
func (c *Compilation) conflicts(r *rendering, out *Ingress) map[string]bool {
	withheld := map[string]bool{}
	claims := c.claims[r.in.Tailnet]
	if claims == nil {
		return withheld
	}
	for _, id := range r.claims {
		owner := claims.holder(id, out.Key)
		if owner == nil {
			continue
		}
		class, name, _ := strings.Cut(id, ":")
		problem := Problem{Name: name, Owner: owner}
		problem.Value = name
		problem.Rule = fmt.Sprintf("%s claimed this name first and keeps it", owner)
		switch Class(class) {
		case ClassDNS:
			withheld[name] = true
			problem.Reason, problem.Path = desired.ReasonDNSNameConflict, r.pathOf(name)
			problem.Remedy = "give this ingress another name or dns_label, or remove the name from " + owner.String()
		case ClassHostname:
			problem.Reason, problem.Path = desired.ReasonHostnameConflict, desired.At("hostname")
			problem.Remedy = "set another hostname, or put {namespace} into the tailnet's hostname_template"
		case ClassTag:
			problem.Reason, problem.Path = desired.ReasonTagConflict, desired.At("name")
			problem.Remedy = "put {namespace} into the tailnet's policy.tag_template, or rename one of the two"
		}
		out.Problems = append(out.Problems, problem)
	}
	return withheld
}

// pathOf points at what makes a name.
func (r *rendering) pathOf(name string) desired.Path {
	expose, ok := r.exposeOf[name]
	if !ok {
		return desired.At("name")
	}
	at := desired.At("exposes").Key(expose)
	if slices.Contains(r.out.Endpoints[expose].DNSAliases, name) {
		return at.Attribute("alias")
	}
	if r.in.Exposes[expose].DNSLabel == nil {
		return desired.At("name")
	}
	return at.Attribute("dns_label")
}

// certificates asks for a certificate for each name, or for one with all of them (C1, X4).
func (c *Compilation) certificates(r *rendering, t *desired.Tailnet, out *Ingress, withheld map[string]bool) {
	if !r.in.HasHTTP() {
		return
	}
	issuer, ok := c.issuer(r.in, t)
	if !ok {
		return
	}
	if issuer == (desired.Key{}) {
		out.Problems = append(out.Problems, Problem{Reason: desired.ReasonReferenceMissing, Refuse: true, FieldError: desired.FieldError{
			Path: desired.At("tls"), Rule: "an http expose needs a certificate, and nothing says where it comes from",
			Remedy: "set tls = { issuer = … } here, or default_issuer on tailnet " + t.Name,
		}})
		return
	}
	var names []string
	for _, name := range out.Names() {
		if !withheld[name] && desired.Known(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	if r.in.TLS != nil && desired.Value(r.in.TLS.Layout, desired.LayoutPerHost) == desired.LayoutSingle {
		out.Certificates = []Certificate{{ID: desired.LayoutSingle, Issuer: issuer, Names: names}}
		return
	}
	for _, name := range names {
		out.Certificates = append(out.Certificates, Certificate{ID: name, Issuer: issuer, Names: []string{name}})
	}
}

// issuer resolves the ingress's issuer: its own, else the tailnet's. It is not ok where that is not there or not known yet:
// the references of the ingress, or of its tailnet, have the verdict on it, so that a tailnet's is given once and not by each
// of its ingresses. It is empty where none is named.
func (c *Compilation) issuer(in *desired.Ingress, t *desired.Tailnet) (desired.Key, bool) {
	for _, ref := range slices.Concat(in.References(), t.References()) {
		if ref.Candidates[0].Kind == desired.KindIssuer {
			return c.resolve(ref)
		}
	}
	return desired.Key{}, true
}

// principals checks allow_from against the tailnet's allow-list (P3) and against what its policy defines.
func (c *Compilation) principals(r *rendering, t *desired.Tailnet) []Problem {
	var problems []Problem
	in, own := r.in, r.out.Tag
	known := c.facts[t.Name].Principals
	for i, principal := range in.AllowFrom {
		if !desired.Known(principal) {
			continue
		}
		at := desired.At("allow_from").Index(i)
		if !t.Allows(principal) {
			problems = append(problems, Problem{Reason: desired.ReasonPolicyRefused, Refuse: true, FieldError: desired.FieldError{
				Path: at, Value: principal,
				Rule: fmt.Sprintf("tailnet %s lets only %s be given access", t.Name, list(t.Policy.AllowFromAllowlist)),
				Remedy: "ask the tailnet's admin to add it to policy.allow_from_allowlist, " +
					"or to write a grant to " + t.TagTemplate().Render(in.Name, in.EffectiveNamespace()) + " into the policy",
			}})
			continue
		}
		if known != nil {
			problems = append(problems, c.undefined(at, principal, t, known, own)...)
		}
	}
	for i, tag := range in.Tags {
		if known != nil && desired.Known(tag) {
			problems = append(problems, c.undefined(desired.At("tags").Index(i), tag, t, known, own)...)
		}
	}
	return problems
}

// undefined refuses a group or tag that the policy does not define: a control plane refuses the whole document for it.
// The ingress's own tag counts, though it may not be declared yet. While a tag that counts is not known, none is refused.
func (c *Compilation) undefined(at desired.Path, principal string, t *desired.Tailnet, known *Principals, own string) []Problem {
	var defined []string
	switch {
	case strings.HasPrefix(principal, "group:"):
		defined = known.Groups
	case strings.HasPrefix(principal, "tag:"):
		if principal == own || c.brings(t, principal) || !desired.Known(string(t.TagTemplate())+t.AgentTag()+own) {
			return nil
		}
		defined = slices.Concat(known.Tags, c.ownTags(t, own))
	default:
		return nil
	}
	if slices.Contains(defined, principal) {
		return nil
	}
	return []Problem{{Reason: desired.ReasonPolicyRefused, Refuse: true, FieldError: desired.FieldError{
		Path: at, Value: principal,
		Rule:   "the policy of tailnet " + t.Name + " does not define it; it defines " + list(defined),
		Remedy: suggest(principal, defined, "define it in the policy first"),
	}}}
}

// brings reports whether a tag comes into the policy with the agent or with an ingress that runs.
func (c *Compilation) brings(t *desired.Tailnet, tag string) bool {
	if tag == t.AgentTag() {
		return true
	}
	claims := c.claims[t.Name]
	if claims == nil {
		return false
	}
	held := claims.Held[claimID(ClassTag, tag)]
	return len(held) > 0 && c.runs(c.rendered[held[0].Owner])
}

// ownTags lists the tags that the agent and the ingresses bring into the tailnet's policy, and own.
func (c *Compilation) ownTags(t *desired.Tailnet, own string) []string {
	tags := []string{t.AgentTag()}
	if own != "" {
		tags = append(tags, own)
	}
	for key := range c.onTailnet[t.Name] {
		if tag := c.rendered[key].out.Tag; c.brings(t, tag) {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// zone refuses names that MagicDNS answers itself (N7): a zone at or below its base domain, and a name there in another zone.
func (c *Compilation) zone(r *rendering, t *desired.Tailnet) []Problem {
	base := strings.ToLower(strings.Trim(c.facts[t.Name].BaseDomain, "."))
	if base == "" {
		return nil
	}
	if zone := t.NameTemplate().Zone(); zone != "" && desired.Within(zone, base) {
		return []Problem{{Reason: desired.ReasonInvalidDNSName, Refuse: true, FieldError: desired.FieldError{
			Path: desired.At("tailnet"), Value: t.Name,
			Rule: fmt.Sprintf("its ingress_name_template lies in zone %s, which is at or below the MagicDNS base domain %s, "+
				"and clients never ask elsewhere for names there", zone, base),
			Remedy: "put the template into a zone outside " + base,
		}}}
	}
	var problems []Problem
	for _, name := range r.out.Names() {
		if desired.Known(name) && desired.Within(name, base) {
			problems = append(problems, Problem{Reason: desired.ReasonInvalidDNSName, Refuse: true, FieldError: desired.FieldError{
				Path: r.pathOf(name), Value: name,
				Rule:   fmt.Sprintf("it is at or below the MagicDNS base domain %s, and clients never ask elsewhere for names there", base),
				Remedy: "give it another name, or put the tailnet's templates into a zone outside " + base,
			}})
		}
	}
	return problems
}
