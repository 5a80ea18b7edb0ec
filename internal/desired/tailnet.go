package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"unicode"
)

// Tailnet is a connection to one tailnet and the rules for what is published on it.
type Tailnet struct {
	Name          string         `json:"name" tfsdk:"name"`
	Headscale     *Headscale     `json:"headscale,omitzero" tfsdk:"headscale"`
	DNS           *TailnetDNS    `json:"dns,omitzero" tfsdk:"dns"`
	Policy        *TailnetPolicy `json:"policy,omitzero" tfsdk:"policy"`
	DefaultIssuer *string        `json:"default_issuer,omitzero" tfsdk:"default_issuer"`
}

// Headscale is a Headscale server and the API key that the agent uses there.
type Headscale struct {
	URL string `json:"url" tfsdk:"url"`
	// CAPEM is what the server's certificate is verified with, where it is not the host's roots.
	CAPEM      *string `json:"ca_pem,omitzero" tfsdk:"ca_pem"`
	APIKeyFile *string `json:"api_key_file,omitzero" tfsdk:"api_key_file"`
	// APIKey is write-only: it is set in a configuration alone and travels beside the spec.
	APIKey        *Secret `json:"-" tfsdk:"api_key_wo"`
	APIKeyVersion *int64  `json:"api_key_wo_version,omitzero" tfsdk:"api_key_wo_version"`
}

// TailnetDNS holds the name templates (N1-N4).
type TailnetDNS struct {
	IngressNameTemplate  *string `json:"ingress_name_template,omitzero" tfsdk:"ingress_name_template"`
	IngressAliasTemplate *string `json:"ingress_alias_template,omitzero" tfsdk:"ingress_alias_template"`
	HostnameTemplate     *string `json:"hostname_template,omitzero" tfsdk:"hostname_template"`
}

// TailnetPolicy says how the agent keeps the tailnet's policy (P1-P4).
type TailnetPolicy struct {
	Mode *string `json:"mode,omitzero" tfsdk:"mode"`
	// AllowFromAllowlist limits the principals of allow_from. Absent: any. Empty: none.
	AllowFromAllowlist []string `json:"allow_from_allowlist,omitzero" tfsdk:"allow_from_allowlist"`
	TagTemplate        *string  `json:"tag_template,omitzero" tfsdk:"tag_template"`
	AgentTag           *string  `json:"agent_tag,omitzero" tfsdk:"agent_tag"`
}

// SecretAPIKey names a tailnet's Headscale API key among its secrets.
const SecretAPIKey = "headscale.api_key_wo"

// Defaults of a tailnet.
const (
	DefaultHostnameTemplate = "ingress-{name}"
	DefaultTagTemplate      = "tag:ingress-{name}"
	DefaultAgentTag         = "tag:postern"
	PolicyManaged           = "managed"
)

var _ Object = (*Tailnet)(nil)

// Key implements Object.
func (t *Tailnet) Key() Key { return Key{Kind: KindTailnet, Namespace: NoNamespace, Name: t.Name} }

// Secrets implements Object.
func (t *Tailnet) Secrets() map[string]*Secret {
	if t.Headscale == nil || t.Headscale.APIKey == nil {
		return nil
	}
	return map[string]*Secret{SecretAPIKey: t.Headscale.APIKey}
}

// References implements Object.
func (t *Tailnet) References() []Reference {
	if t.DefaultIssuer == nil {
		return nil
	}
	return []Reference{{
		Path: At("default_issuer"), Value: *t.DefaultIssuer,
		Candidates: []Key{{Kind: KindIssuer, Namespace: NoNamespace, Name: *t.DefaultIssuer}},
	}}
}

// NameTemplate is the template of DNS names; empty where the tailnet has none.
func (t *Tailnet) NameTemplate() Template {
	return Template(Value(Value(t.DNS, TailnetDNS{}).IngressNameTemplate, ""))
}

// AliasTemplate is the template of aliases; empty where the tailnet has none.
func (t *Tailnet) AliasTemplate() Template {
	return Template(Value(Value(t.DNS, TailnetDNS{}).IngressAliasTemplate, ""))
}

// HostnameTemplate is the template of MagicDNS labels.
func (t *Tailnet) HostnameTemplate() Template {
	return Template(Value(Value(t.DNS, TailnetDNS{}).HostnameTemplate, DefaultHostnameTemplate))
}

// TagTemplate is the template of the tag that each ingress has for itself (P4).
func (t *Tailnet) TagTemplate() Template {
	return Template(Value(Value(t.Policy, TailnetPolicy{}).TagTemplate, DefaultTagTemplate))
}

// AgentTag is the tag that owns the ingresses' tags.
func (t *Tailnet) AgentTag() string {
	return Value(Value(t.Policy, TailnetPolicy{}).AgentTag, DefaultAgentTag)
}

// Allows reports whether principal may stand in allow_from (P3): an entry equals it, or * in the entry stands for any text
// without a slash, so that no pattern of addresses reaches a wider network. The entry * alone allows everyone. An entry that is
// not known yet may allow it.
func (t *Tailnet) Allows(principal string) bool {
	if t.Policy == nil || t.Policy.AllowFromAllowlist == nil {
		return true
	}
	for _, pattern := range t.Policy.AllowFromAllowlist {
		if ok, err := path.Match(pattern, principal); err == nil && ok || pattern == "*" || !Known(pattern) {
			return true
		}
	}
	return false
}

// Warnings implements Object.
func (t *Tailnet) Warnings() []Warning {
	var warnings []Warning
	if t.Headscale != nil && sendsInTheClear(t.Headscale.URL) {
		warnings = append(warnings, Warning{
			Path:    At("headscale").Attribute("url"),
			Summary: "The API key is sent unencrypted",
			Detail: fmt.Sprintf("%q is another host and not https://, so whoever is on the way there can read the API key and then change "+
				"the tailnet. Give Headscale a certificate, and ca_pem where its CA is your own.", t.Headscale.URL),
		})
	}
	if template := t.NameTemplate(); template.Ambiguous() && Known(string(template)) {
		warnings = append(warnings, Warning{
			Path:    At("dns").Attribute("ingress_name_template"),
			Summary: "Two namespaces can render the same name",
			Detail: fmt.Sprintf("%q joins name and namespace in one label, so shop-a in b and shop in a-b get the same name, and the younger "+
				"is not published. Put a dot between them where several teams share the tailnet: {name}.{namespace}.%s.", template, template.Zone()),
		})
	}
	return warnings
}

// sendsInTheClear reports whether a URL leads to another host without TLS.
func sendsInTheClear(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || !Known(s) {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback())
}

// Validate implements Object.
func (t *Tailnet) Validate() error {
	var f faults
	f.label(At("name"), t.Name)
	t.validateHeadscale(&f)
	if t.DNS != nil {
		t.DNS.validate(&f, At("dns"))
	}
	if t.Policy != nil {
		t.Policy.validate(&f, At("policy"))
	}
	if t.DefaultIssuer != nil {
		f.label(At("default_issuer"), *t.DefaultIssuer)
	}
	return f.err()
}

func (t *Tailnet) validateHeadscale(f *faults) {
	at := At("headscale")
	if t.Headscale == nil {
		f.add(at, "", "a tailnet names its control plane", "add headscale = { url = \"https://…\", api_key_file = \"…\" }")
		return
	}
	h := t.Headscale
	if err := serverURLRule(h.URL); err != nil && Known(h.URL) {
		f.add(at.Attribute("url"), withoutPassword(h.URL), err.Error(), "give the server_url of Headscale, for example https://headscale.example.internal")
	}
	if h.CAPEM != nil {
		f.certificates(at.Attribute("ca_pem"), *h.CAPEM)
	}
	f.apiKey(at, h)
}

// apiKey checks that exactly one source of the API key is named.
func (f *faults) apiKey(at Path, h *Headscale) {
	const one = "the API key comes from exactly one place: api_key_wo with api_key_wo_version, or api_key_file"
	switch {
	case h.APIKeyFile != nil && (h.APIKey != nil || h.APIKeyVersion != nil):
		f.add(at.Attribute("api_key_file"), *h.APIKeyFile, one, "remove one of the two")
	case h.APIKeyFile != nil:
		f.absoluteFile(at.Attribute("api_key_file"), *h.APIKeyFile)
	case h.APIKey != nil && h.APIKeyVersion == nil:
		f.add(at.Attribute("api_key_wo_version"), "", "a write-only key has a version, since Terraform cannot see it change",
			"add api_key_wo_version = 1, and raise it with each new key")
	case h.APIKey == nil && h.APIKeyVersion == nil:
		f.add(at.Attribute("api_key_wo"), "", one, "set one of the two; `headscale apikeys create` makes a key")
	case h.APIKey != nil && h.APIKey.Reveal() == "":
		f.add(at.Attribute("api_key_wo"), "", "the API key is not empty", "`headscale apikeys create` makes a key")
	case h.APIKey != nil && strings.ContainsFunc(h.APIKey.Reveal(), unicode.IsSpace):
		f.add(at.Attribute("api_key_wo"), "", "the API key has no space and no line break", "wrap what reads it in trimspace()")
	}
}

func (d *TailnetDNS) validate(f *faults, at Path) {
	f.template(at.Attribute("ingress_name_template"), d.IngressNameTemplate, Template.nameRule,
		"write it like {name}.{namespace}.tailnet.example.internal")
	f.template(at.Attribute("ingress_alias_template"), d.IngressAliasTemplate, Template.nameRule,
		"write it like {name}.tailnet.example.internal")
	f.template(at.Attribute("hostname_template"), d.HostnameTemplate, func(t Template) error {
		if err := t.placeholderRule(); err != nil {
			return err
		}
		_, err := DNSLabel(t.Render("x", "x"))
		return err
	}, "write it like ingress-{name}")
	if d.IngressAliasTemplate == nil {
		return
	}
	alias := Template(*d.IngressAliasTemplate)
	if d.IngressNameTemplate == nil {
		f.add(at.Attribute("ingress_alias_template"), *d.IngressAliasTemplate, "aliases lie in the zone of ingress_name_template, which is missing",
			"add ingress_name_template")
		return
	}
	name := Template(*d.IngressNameTemplate)
	if !Known(string(name)) || !Known(string(alias)) || name.Zone() == "" || alias.Zone() == "" {
		return
	}
	if !Within(alias.Zone(), name.Zone()) {
		f.addf(at.Attribute("ingress_alias_template"), string(alias), "end both templates in the same zone",
			"InvalidDNSName: aliases lie in the zone of ingress_name_template, %s, not in %s", name.Zone(), alias.Zone())
	}
}

func (p *TailnetPolicy) validate(f *faults, at Path) {
	if p.Mode != nil && *p.Mode != PolicyManaged && Known(*p.Mode) {
		f.add(at.Attribute("mode"), *p.Mode, "the policy mode is \"managed\"; this version has no other", "leave it out or write \"managed\"")
	}
	for i, pattern := range p.AllowFromAllowlist {
		if Known(pattern) && (pattern == "" || strings.ContainsAny(pattern, `?[]\`) || strings.ContainsFunc(pattern, unicode.IsSpace)) {
			f.add(at.Attribute("allow_from_allowlist").Index(i), pattern, "an entry is a principal or a pattern of principals with *",
				"write it like group:* or autogroup:member")
		}
	}
	f.template(at.Attribute("tag_template"), p.TagTemplate, func(t Template) error {
		if err := t.placeholderRule(); err != nil {
			return err
		}
		return tagRule(t.Render("x", "x"))
	}, "write it like tag:ingress-{name}")
	if p.AgentTag != nil {
		f.tag(at.Attribute("agent_tag"), *p.AgentTag)
	}
}

// withoutPassword is a URL as an error may show it.
func withoutPassword(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil && strings.Contains(s, "@"):
		return ""
	case err == nil && u.User != nil:
		return u.Redacted()
	}
	return s
}

// serverURLRule says why s cannot be the address of a control plane; nil where it can.
func serverURLRule(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("the URL cannot be read")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("the URL starts with https:// (or http:// on one's own host)")
	case u.Hostname() == "":
		return errors.New("the URL has a host")
	case u.User != nil:
		return errors.New("the URL has no user or password in it")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("the URL has no path, query or fragment")
	case u.Port() != "":
		return portRule(u.Port())
	}
	return nil
}
