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
	out.Problems = append(out.Problems, c.missing(r.in.References())...)
	out.Routes = map[string]string{}
	withheld := c.conflicts(r, &out)
	if t := c.tailnet(r.in.Tailnet); t != nil {
		if refused := c.principals(r, t); len(refused) > 0 {
			// A grant that may not be given, or that would have the whole document refused, is left out whole.
			out.Problems, out.Grant = append(out.Problems, refused...), nil
		}
		out.Problems = append(out.Problems, c.zone(t)...)
		if !r.ending {
			c.certificates(r, t, &out, withheld)
		}
	}
	for host, expose := range r.exposeOf {
		if !withheld[host] && !r.ending {
			out.Routes[host] = expose
		}
	}
	out.Withdrawn = withdrawn(&out)
	return &out
}

// withdrawn reports whether nothing of the ingress may run. A fault of one expose, of the certificates or of the access
// leaves the rest running.
func withdrawn(out *Ingress) bool {
	if out.Hostname == "" || out.Tag == "" || !desired.Known(out.Hostname+out.Tag) {
		return true // no tailnet, or no identity
	}
	for _, p := range out.Problems {
		if p.Reason == desired.ReasonHostnameConflict || p.Reason == desired.ReasonTagConflict {
			return true
		}
	}
	return false
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
// The ingress's own tag counts, though it may not be declared yet. While one that counts is not known, nothing is refused.
func (c *Compilation) undefined(at desired.Path, principal string, t *desired.Tailnet, known *Principals, own string) []Problem {
	var defined []string
	switch {
	case strings.HasPrefix(principal, "group:"):
		defined = known.Groups
	case strings.HasPrefix(principal, "tag:"):
		defined = slices.Concat(known.Tags, c.ownTags(t, own))
	default:
		return nil
	}
	if slices.Contains(defined, principal) || !desired.Known(strings.Join(defined, "")) {
		return nil
	}
	return []Problem{{Reason: desired.ReasonPolicyRefused, Refuse: true, FieldError: desired.FieldError{
		Path: at, Value: principal,
		Rule:   "the policy of tailnet " + t.Name + " does not define it; it defines " + list(defined),
		Remedy: suggest(principal, defined, "define it in the policy first"),
	}}}
}

// ownTags lists the tags that ingresses of the tailnet bring into its policy, and the agent's.
func (c *Compilation) ownTags(t *desired.Tailnet, own string) []string {
	tags := []string{t.AgentTag(), own}
	for key := range c.onTailnet[t.Name] {
		tags = append(tags, c.rendered[key].out.Tag)
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool { return tag == "" })
	slices.Sort(tags)
	return slices.Compact(tags)
}

// zone refuses a zone that MagicDNS answers itself (N7).
func (c *Compilation) zone(t *desired.Tailnet) []Problem {
	base, zone := c.facts[t.Name].BaseDomain, t.NameTemplate().Zone()
	if base == "" || zone == "" || !desired.Within(zone, base) {
		return nil
	}
	return []Problem{{Reason: desired.ReasonInvalidDNSName, Refuse: true, FieldError: desired.FieldError{
		Path: desired.At("tailnet"), Value: t.Name,
		Rule: fmt.Sprintf("its ingress_name_template lies in zone %s, which is at or below the MagicDNS base domain %s, "+
			"and clients never ask elsewhere for names there", zone, base),
		Remedy: "put the template into a zone outside " + base,
	}}}
}
