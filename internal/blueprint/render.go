package blueprint

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// rendering is an ingress compiled with its tailnet and nothing else.
type rendering struct {
	in *desired.Ingress
	// out has no verdicts on names that others hold yet.
	out Ingress
	// exposeOf leads each host to its expose.
	exposeOf map[string]string
	// claims lists the ids of what the ingress claims.
	claims []string
	// ending says that the object is deleting: it claims no DNS name, so it serves none either.
	ending bool
}

// renderIngress makes names from templates. A missing tailnet leaves them empty.
func renderIngress(in *desired.Ingress, t *desired.Tailnet) *rendering {
	r := &rendering{in: in, exposeOf: map[string]string{}}
	r.out = Ingress{
		Key: in.Key(), Tailnet: in.Tailnet, Namespace: in.EffectiveNamespace(),
		Hosts: []string{}, Endpoints: map[string]Endpoint{}, Routes: map[string]string{},
	}
	if t == nil {
		for name, e := range in.Exposes {
			r.out.Endpoints[name] = Endpoint{Mode: e.EffectiveMode(), Port: e.EffectivePort(), DNSAliases: []string{}}
		}
		return r
	}
	r.identity(t)
	r.names(t)
	r.grant()
	return r
}

// identity renders the hostname and the tag.
func (r *rendering) identity(t *desired.Tailnet) {
	in, out := r.in, &r.out
	hostname, at := t.HostnameTemplate().Render(in.Name, out.Namespace), desired.At("name")
	if in.Hostname != nil {
		hostname, at = *in.Hostname, desired.At("hostname")
	}
	out.Hostname = r.name(at, hostname, desired.ReasonInvalidDNSName, desired.DNSLabel, "set hostname, or change the tailnet's hostname_template")
	r.claim(ClassHostname, out.Hostname)
	out.Tag = r.name(desired.At("name"), t.TagTemplate().Render(in.Name, out.Namespace), desired.ReasonInvalidSpec, desired.Tag,
		"rename the ingress, or change the tailnet's policy.tag_template")
	if out.Tag != "" && out.Tag == t.AgentTag() && desired.Known(out.Tag) {
		// Its node would own every ingress's tag.
		r.refuse(desired.At("name"), out.Tag, desired.ReasonTagConflict, "this is the tailnet's policy.agent_tag, which no ingress has",
			"rename the ingress, or change the tailnet's policy.tag_template")
	}
	r.claim(ClassTag, out.Tag)
	out.Tags = slices.Clone(in.Tags)
	if out.Tag != "" {
		out.Tags = append(out.Tags, out.Tag)
	}
	slices.Sort(out.Tags)
	out.Tags = slices.Compact(out.Tags)
}

// names renders the DNS names and what follows from them: hosts and endpoints.
func (r *rendering) names(t *desired.Tailnet) {
	in, out, template := r.in, &r.out, t.NameTemplate()
	if template == "" && in.HasHTTP() {
		r.refuse(desired.At("tailnet"), in.Tailnet, desired.ReasonInvalidDNSName,
			"an http expose needs a name, and the tailnet has no dns.ingress_name_template",
			"set dns.ingress_name_template on the tailnet, or use mode = \"tcp\"")
	}
	if template != "" {
		out.DNSName = r.dnsName(desired.At("name"), template.Render(in.Name, out.Namespace))
		r.claim(ClassDNS, out.DNSName)
	}
	for _, name := range in.ExposeNames() {
		r.endpoint(name, in.Exposes[name], t)
	}
	slices.SortFunc(out.Hosts, func(a, b string) int {
		if (a == out.DNSName) != (b == out.DNSName) {
			if a == out.DNSName {
				return -1
			}
			return 1
		}
		return compareText(a, b)
	})
}

func (r *rendering) endpoint(name string, e desired.Expose, t *desired.Tailnet) {
	in, out := r.in, &r.out
	endpoint := Endpoint{DNSName: out.DNSName, DNSAliases: []string{}, Mode: e.EffectiveMode(), Port: e.EffectivePort()}
	defer func() { out.Endpoints[name] = endpoint }()
	if endpoint.Mode != desired.ModeHTTP {
		if endpoint.DNSName != "" && desired.Known(string(endpoint.Mode)) {
			endpoint.URL = fmt.Sprintf("%s://%s:%s", endpoint.Mode, endpoint.DNSName, strconv.FormatInt(endpoint.Port, 10))
		}
		return
	}
	if t.NameTemplate() == "" {
		return
	}
	at := desired.At("exposes").Key(name)
	label := in.Name
	if e.DNSLabel != nil {
		label = *e.DNSLabel
		endpoint.DNSName = r.dnsName(at.Attribute("dns_label"), t.NameTemplate().Render(label, out.Namespace))
	}
	if endpoint.DNSName != "" {
		endpoint.URL = "https://" + endpoint.DNSName
	}
	r.host(at.Attribute("dns_label"), name, endpoint.DNSName)
	if !desired.Value(e.Alias, false) {
		return
	}
	template := t.AliasTemplate()
	if template == "" {
		r.refuse(at.Attribute("alias"), "true", desired.ReasonInvalidDNSName,
			"an alias needs the tailnet's dns.ingress_alias_template, which is missing", "set it on the tailnet, or remove alias")
		return
	}
	alias := r.dnsName(at.Attribute("alias"), template.Render(label, out.Namespace))
	if alias != "" && desired.Known(alias) && desired.Known(string(t.NameTemplate())) && !desired.Within(alias, t.NameTemplate().Zone()) {
		r.refuse(at.Attribute("alias"), alias, desired.ReasonInvalidDNSName,
			"an alias lies in the zone "+t.NameTemplate().Zone(), "change the tailnet's ingress_alias_template")
		return
	}
	if alias == "" || alias == endpoint.DNSName && desired.Known(alias) {
		return
	}
	endpoint.DNSAliases = append(endpoint.DNSAliases, alias)
	r.host(at.Attribute("alias"), name, alias)
}

// host publishes a name for an expose. One that was refused is empty, and is published by nobody.
func (r *rendering) host(at desired.Path, expose, host string) {
	if host == "" {
		return
	}
	if !desired.Known(host) {
		r.out.Hosts = append(r.out.Hosts, host)
		return
	}
	if other, taken := r.exposeOf[host]; taken {
		r.refuse(at, host, desired.ReasonDNSNameConflict,
			fmt.Sprintf("exposes[%q] of the same ingress publishes this name already", other), "give one of the two another dns_label, or no alias")
		return
	}
	r.exposeOf[host] = expose
	r.out.Hosts = append(r.out.Hosts, host)
	r.claim(ClassDNS, host)
}

func (r *rendering) claim(class Class, name string) {
	if name == "" || !desired.Known(name) {
		return
	}
	if id := claimID(class, name); !slices.Contains(r.claims, id) {
		r.claims = append(r.claims, id)
	}
}

func (r *rendering) dnsName(at desired.Path, text string) string {
	return r.name(at, text, desired.ReasonInvalidDNSName, desired.DNSName, "change it, or the tailnet's template")
}

// name normalises a rendered name. One that breaks the rules is refused and becomes empty (N9): it is claimed, published and
// asked a certificate for by nobody, and the other names stand. Text that is not known yet passes as it is.
func (r *rendering) name(
	at desired.Path, text string, reason desired.Reason, rule func(string) (string, error), remedy string,
) string {
	if !desired.Known(text) {
		return text
	}
	name, err := rule(text)
	if err != nil {
		r.refuse(at, text, reason, err.Error(), remedy)
		return ""
	}
	return name
}

func (r *rendering) refuse(at desired.Path, value string, reason desired.Reason, rule, remedy string) {
	r.out.Problems = append(r.out.Problems, Problem{
		FieldError: desired.FieldError{Path: at, Value: value, Rule: rule, Remedy: remedy}, Reason: reason, Refuse: true,
	})
}

// grant renders allow_from (P3).
func (r *rendering) grant() {
	if len(r.in.AllowFrom) == 0 || r.out.Tag == "" {
		return
	}
	ports := map[string]bool{}
	for _, e := range r.in.Exposes {
		ports[e.Protocol()+":"+strconv.FormatInt(e.EffectivePort(), 10)] = true
	}
	if desired.Value(r.in.RedirectHTTP, false) {
		ports["tcp:"+strconv.Itoa(desired.PortHTTP)] = true
	}
	grant := &Grant{Src: slices.Clone(r.in.AllowFrom), Dst: []string{r.out.Tag}}
	for port := range ports {
		grant.IP = append(grant.IP, port)
	}
	slices.Sort(grant.Src)
	grant.Src = slices.Compact(grant.Src)
	slices.Sort(grant.IP)
	r.out.Grant = grant
}
