package desired

import (
	"reflect"
	"strings"
	"testing"
)

// row is a bad input: what is changed on a good object, and the whole text of the error.
type row struct {
	attribute string // the schema's path, without keys
	bad       func() Object
	want      string
}

func issuerWith(change func(*Issuer)) func() Object {
	return func() Object {
		i := &Issuer{Name: "apps", CA: &CAIssuer{Create: ptr(true)}}
		change(i)
		return i
	}
}

func tailnetWith(change func(*Tailnet)) func() Object {
	return func() Object {
		t := &Tailnet{
			Name: "corp", Headscale: &Headscale{URL: "https://hs.example.internal", APIKeyFile: ptr("/key")},
			DNS: &TailnetDNS{IngressNameTemplate: ptr("{name}.{namespace}.example.internal")}, Policy: &TailnetPolicy{},
		}
		change(t)
		return t
	}
}

func ingressWith(change func(*Ingress)) func() Object {
	return func() Object {
		in := &Ingress{Name: "shop", Tailnet: "corp", Exposes: map[string]Expose{
			"db":  {Port: ptr(int64(5432)), Backend: Backend{Targets: []string{"10.0.0.7:5432"}}},
			"web": {Mode: ptr(ModeHTTP), Backend: Backend{Targets: []string{"127.0.0.1:8080"}}},
		}}
		change(in)
		return in
	}
}

func exposeWith(name string, change func(*Expose)) func() Object {
	return ingressWith(func(in *Ingress) {
		e := in.Exposes[name]
		change(&e)
		in.Exposes[name] = e
	})
}

func target(text string) func() Object {
	return exposeWith("db", func(e *Expose) { e.Backend.Targets = []string{text} })
}

const labelWant = `a name has lower-case letters, digits and inner hyphens only (RFC 1123); write it like shop or shop-1`

func issuerRows() []row {
	return []row{
		{"name", issuerWith(func(i *Issuer) { i.Name = "Apps" }), `name: "Apps": ` + labelWant},
		{"name", issuerWith(func(i *Issuer) { i.Name = "" }), `name: a name is needed; write it like shop or shop-1`},
		{"name", issuerWith(func(i *Issuer) { i.Name = strings.Repeat("a", 64) }),
			`name: "` + strings.Repeat("a", 64) + `": a name has at most 63 characters, this one has 64; write it like shop or shop-1`},
		{"namespace", issuerWith(func(i *Issuer) { i.Namespace = ptr("-") }), `namespace: "-": ` + labelWant},
		{"ca", issuerWith(func(i *Issuer) { i.CA = nil }), `ca: an issuer says how it issues; this version issues from a CA; add ca = { create = true }`},
		{"ca.create", issuerWith(func(i *Issuer) { i.CA.Create = ptr(false) }),
			`ca: a CA has certificate_file and key_file, or create = true; add ca = { create = true }, or name both files`},
		{"ca.certificate_file", issuerWith(func(i *Issuer) { i.CA.CertificateFile = ptr("/ca.pem") }),
			`ca: certificate_file and key_file come together; add the other one`},
		{"ca.certificate_file", issuerWith(func(i *Issuer) { i.CA.CertificateFile, i.CA.KeyFile = ptr("ca.pem"), ptr("/k") }),
			`ca.certificate_file: "ca.pem": a file on the agent's host is named by an absolute path; start it with /`},
		{"ca.key_file", issuerWith(func(i *Issuer) { i.CA.CertificateFile, i.CA.KeyFile = ptr("/c"), ptr("k") }),
			`ca.key_file: "k": a file on the agent's host is named by an absolute path; start it with /`},
		{"ca.key_file", issuerWith(func(i *Issuer) { i.CA.CertificateFile, i.CA.KeyFile = ptr("/c"), ptr("/c") }),
			`ca.key_file: "/c": certificate and key are two files; name another file`},
	}
}

func tailnetRows() []row {
	url := func(text string) func() Object { return tailnetWith(func(t *Tailnet) { t.Headscale.URL = text }) }
	const urlRemedy = `; give the server_url of Headscale, for example https://headscale.example.internal`
	const one = `the API key comes from exactly one place: api_key_wo with api_key_wo_version, or api_key_file`
	return []row{
		{"name", tailnetWith(func(t *Tailnet) { t.Name = "a.b" }), `name: "a.b": ` + labelWant},
		{"headscale", tailnetWith(func(t *Tailnet) { t.Headscale = nil }),
			`headscale: a tailnet names its control plane; add headscale = { url = "https://…", api_key_file = "…" }`},
		{"headscale.url", url("hs.example"), `headscale.url: "hs.example": the URL starts with https:// (or http:// on one's own host)` + urlRemedy},
		{"headscale.url", url("https://"), `headscale.url: "https://": the URL has a host` + urlRemedy},
		{"headscale.url", url("https://a:b@c"), `headscale.url: "https://a:xxxxx@c": the URL has no user or password in it` + urlRemedy},
		{"headscale.url", url("https://c/api"), `headscale.url: "https://c/api": the URL has no path, query or fragment` + urlRemedy},
		{"headscale.url", url("https://c:99999"), `headscale.url: "https://c:99999": a port is a number from 1 to 65535, not "99999"` + urlRemedy},
		{"headscale.url", url("https://a:b@c:x"), `headscale.url: the URL cannot be read` + urlRemedy},
		{"headscale.url", url(":"), `headscale.url: ":": the URL cannot be read` + urlRemedy},
		{"headscale.ca_pem", tailnetWith(func(t *Tailnet) { t.Headscale.CAPEM = ptr("x") }),
			`headscale.ca_pem: a bundle has at least one certificate, and this text has none; give the CA's certificates in PEM, and nothing else`},
		{"headscale.ca_pem", tailnetWith(func(t *Tailnet) { t.Headscale.CAPEM = ptr(strings.Repeat("x", 1<<20+1)) }),
			`headscale.ca_pem: a bundle has at most 1048576 bytes, this one has 1048577; give the CA's certificates in PEM, and nothing else`},
		{"headscale.ca_pem", tailnetWith(func(t *Tailnet) {
			t.Headscale.CAPEM = ptr("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		}), `headscale.ca_pem: block 1 is of type "PRIVATE KEY", and a bundle holds certificates only; give the CA's certificates in PEM, and nothing else`},
		{"headscale.api_key_file", tailnetWith(func(t *Tailnet) { t.Headscale.APIKeyFile = ptr("key") }),
			`headscale.api_key_file: "key": a file on the agent's host is named by an absolute path; start it with /`},
		{"headscale.api_key_file", tailnetWith(func(t *Tailnet) { t.Headscale.APIKeyVersion = ptr(int64(1)) }),
			`headscale.api_key_file: "/key": ` + one + `; remove one of the two`},
		{"headscale.api_key_wo", tailnetWith(func(t *Tailnet) { t.Headscale.APIKeyFile = nil }),
			`headscale.api_key_wo: ` + one + "; set one of the two; `headscale apikeys create` makes a key"},
		{"headscale.api_key_wo", tailnetWith(func(t *Tailnet) {
			t.Headscale.APIKeyFile, t.Headscale.APIKey, t.Headscale.APIKeyVersion = nil, ptr(Secret("")), ptr(int64(1))
		}), "headscale.api_key_wo: the API key is not empty; `headscale apikeys create` makes a key"},
		{"headscale.api_key_wo", tailnetWith(func(t *Tailnet) {
			t.Headscale.APIKeyFile, t.Headscale.APIKey, t.Headscale.APIKeyVersion = nil, ptr(Secret("k\n")), ptr(int64(1))
		}), "headscale.api_key_wo: the API key has no space and no line break; wrap what reads it in trimspace()"},
		{"headscale.api_key_wo_version", tailnetWith(func(t *Tailnet) { t.Headscale.APIKeyFile, t.Headscale.APIKey = nil, ptr(Secret("k")) }),
			`headscale.api_key_wo_version: a write-only key has a version, since Terraform cannot see it change; ` +
				`add api_key_wo_version = 1, and raise it with each new key`},
		{"dns.ingress_name_template", tailnetWith(func(t *Tailnet) { t.DNS.IngressNameTemplate = ptr("shop.example.internal") }),
			`dns.ingress_name_template: "shop.example.internal": a template contains {name}, or every ingress would have one name; ` +
				`write it like {name}.{namespace}.tailnet.example.internal`},
		{"dns.ingress_name_template", tailnetWith(func(t *Tailnet) { t.DNS.IngressNameTemplate = ptr("{name}.{team}.x") }),
			`dns.ingress_name_template: "{name}.{team}.x": a template has the placeholders {name} and {namespace} only, not {team}; ` +
				`write it like {name}.{namespace}.tailnet.example.internal`},
		{"dns.ingress_name_template", tailnetWith(func(t *Tailnet) { t.DNS.IngressNameTemplate = ptr("{name}.x_y.z") }),
			`dns.ingress_name_template: "{name}.x_y.z": a DNS label has letters, digits and inner hyphens only (RFC 1123), "x_y" has others; ` +
				`write it like {name}.{namespace}.tailnet.example.internal`},
		{"dns.ingress_name_template", tailnetWith(func(t *Tailnet) { t.DNS.IngressNameTemplate = ptr("{name}-{namespace}") }),
			`dns.ingress_name_template: "{name}-{namespace}": a name template ends in a zone: at least one label without a placeholder; ` +
				`write it like {name}.{namespace}.tailnet.example.internal`},
		{"dns.ingress_name_template", tailnetWith(func(t *Tailnet) { t.DNS.IngressNameTemplate = ptr("{name}.10") }),
			`dns.ingress_name_template: "{name}.10": the last label of a DNS name has a letter (RFC 1123), or it would be read as an address; ` +
				`write it like {name}.{namespace}.tailnet.example.internal`},
		{"dns.ingress_alias_template", tailnetWith(func(t *Tailnet) { t.DNS.IngressAliasTemplate = ptr("{name}.other.internal") }),
			`dns.ingress_alias_template: "{name}.other.internal": InvalidDNSName: aliases lie in the zone of ingress_name_template, ` +
				`example.internal, not in other.internal; end both templates in the same zone`},
		{"dns.ingress_alias_template", tailnetWith(func(t *Tailnet) {
			t.DNS.IngressAliasTemplate, t.DNS.IngressNameTemplate = ptr("{name}.example.internal"), nil
		}), `dns.ingress_alias_template: "{name}.example.internal": aliases lie in the zone of ingress_name_template, which is missing; ` +
			`add ingress_name_template`},
		{"dns.hostname_template", tailnetWith(func(t *Tailnet) { t.DNS.HostnameTemplate = ptr("{name}.x") }),
			`dns.hostname_template: "{name}.x": a label has no dot; write it like ingress-{name}`},
		{"dns.hostname_template", tailnetWith(func(t *Tailnet) { t.DNS.HostnameTemplate = ptr("ingress") }),
			`dns.hostname_template: "ingress": a template contains {name}, or every ingress would have one name; write it like ingress-{name}`},
		{"policy.allow_from_allowlist", tailnetWith(func(t *Tailnet) { t.Policy.AllowFromAllowlist = []string{"group:?"} }),
			`policy.allow_from_allowlist[0]: "group:?": an entry is a principal or a pattern of principals with *; write it like group:* or autogroup:member`},
		{"policy.tag_template", tailnetWith(func(t *Tailnet) { t.Policy.TagTemplate = ptr("tag:{names}") }),
			`policy.tag_template: "tag:{names}": a template has the placeholders {name} and {namespace} only, not {names}; write it like tag:ingress-{name}`},
		{"policy.mode", tailnetWith(func(t *Tailnet) { t.Policy.Mode = ptr("external") }),
			`policy.mode: "external": the policy mode is "managed"; this version has no other; leave it out or write "managed"`},
		{"policy.allow_from_allowlist", tailnetWith(func(t *Tailnet) { t.Policy.AllowFromAllowlist = []string{"["} }),
			`policy.allow_from_allowlist[0]: "[": an entry is a principal or a pattern of principals with *; write it like group:* or autogroup:member`},
		{"policy.tag_template", tailnetWith(func(t *Tailnet) { t.Policy.TagTemplate = ptr("ingress-{name}") }),
			`policy.tag_template: "ingress-{name}": a tag is tag: and then letters, digits and hyphens, starting with a letter; write it like tag:ingress-{name}`},
		{"policy.agent_tag", tailnetWith(func(t *Tailnet) { t.Policy.AgentTag = ptr("tag:1") }),
			`policy.agent_tag: "tag:1": a tag is tag: and then letters, digits and hyphens, starting with a letter; write it like tag:internal-apps`},
		{"default_issuer", tailnetWith(func(t *Tailnet) { t.DefaultIssuer = ptr("a/b") }), `default_issuer: "a/b": ` + labelWant},
	}
}

func ingressRows() []row {
	const targetRemedy = `; write it like 127.0.0.1:8080 or shop.internal:8080`
	const principal = `a principal is a group, autogroup, tag, user, host, address or CIDR; ` +
		`write it like group:shop, autogroup:member, tag:ci, ann@example.com or 100.64.0.7`
	at := `exposes["db"].`
	return []row{
		{"name", ingressWith(func(in *Ingress) { in.Name = "-" }), `name: "-": ` + labelWant},
		{"namespace", ingressWith(func(in *Ingress) { in.Namespace = ptr("") }), `namespace: a name is needed; write it like shop or shop-1`},
		{"tailnet", ingressWith(func(in *Ingress) { in.Tailnet = "Corp" }), `tailnet: "Corp": ` + labelWant},
		{"hostname", ingressWith(func(in *Ingress) { in.Hostname = ptr("a.b") }),
			`hostname: "a.b": InvalidDNSName: a label has no dot; write one label, like shop-admin`},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{"group:a:443"} }), `allow_from[0]: "group:a:443": ` + principal},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{"10.0.0.1/8"} }),
			`allow_from[0]: "10.0.0.1/8": a CIDR has no host bits set; write 10.0.0.0/8`},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{"100.64.0.300"} }), `allow_from[0]: "100.64.0.300": ` + principal},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{"fe80::1%eth0"} }), `allow_from[0]: "fe80::1%eth0": ` + principal},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{"ann@a b"} }), `allow_from[0]: "ann@a b": ` + principal},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{""} }), `allow_from[0]: ` + principal},
		{"allow_from", ingressWith(func(in *Ingress) { in.AllowFrom = []string{"tag:1"} }),
			`allow_from[0]: "tag:1": a tag is tag: and then letters, digits and hyphens, starting with a letter; write it like tag:internal-apps`},
		{"tags", ingressWith(func(in *Ingress) { in.Tags = []string{"apps"} }),
			`tags[0]: "apps": a tag is tag: and then letters, digits and hyphens, starting with a letter; write it like tag:internal-apps`},
		{"tls", ingressWith(func(in *Ingress) { delete(in.Exposes, "web"); in.TLS = &IngressTLS{} }),
			`tls: tls is for http exposes, and there is none; remove tls, or set mode = "http" on an expose`},
		{"tls.issuer", ingressWith(func(in *Ingress) { in.TLS = &IngressTLS{Issuer: ptr("A")} }), `tls.issuer: "A": ` + labelWant},
		{"tls.layout", ingressWith(func(in *Ingress) { in.TLS = &IngressTLS{Layout: ptr("one")} }),
			`tls.layout: "one": the value is one of per-host, single; pick one of them`},
		{"redirect_http", ingressWith(func(in *Ingress) { delete(in.Exposes, "web"); in.RedirectHTTP = ptr(true) }),
			`redirect_http: "true": the redirect goes to an http expose, and there is none; remove redirect_http, or set mode = "http" on an expose`},
		{"exposes", ingressWith(func(in *Ingress) { in.Exposes = nil }),
			`exposes: an ingress exposes something; add exposes = { web = { port = 8080, backend = { targets = ["127.0.0.1:8080"] } } }`},
		{"exposes", ingressWith(func(in *Ingress) { in.Exposes["A"] = in.Exposes["db"]; delete(in.Exposes, "db") }),
			`exposes["A"]: "A": an expose's name follows the rule of names: a name has lower-case letters, digits and inner hyphens only (RFC 1123); ` +
				`write it like web or postgres`},
		{"exposes.mode", exposeWith("db", func(e *Expose) { e.Mode = ptr(Mode("sctp")) }),
			at + `mode: "sctp": the value is one of tcp, udp, http; pick one of them`},
		{"exposes.port", exposeWith("db", func(e *Expose) { e.Port = nil }),
			at + `port: a tcp expose has a port; add the port that peers dial, for example port = 5432`},
		{"exposes.port", exposeWith("db", func(e *Expose) { e.Port = ptr(int64(65536)) }),
			at + `port: "65536": a port is a number from 1 to 65535; pick the port that peers dial`},
		{"exposes.port", exposeWith("web", func(e *Expose) { e.Port = ptr(int64(8443)) }),
			`exposes["web"].port: "8443": an http expose is always on port 443; leave port out`},
		{"exposes.port", exposeWith("db", func(e *Expose) { e.Port = ptr(int64(443)) }),
			at + `port: "443": tcp/443 is already used by exposes["web"]; pick another port`},
		{"exposes.port", ingressWith(func(in *Ingress) {
			in.Exposes["admin"] = Expose{Mode: ptr(ModeHTTP), DNSLabel: ptr("x"), Backend: in.Exposes["web"].Backend}
			in.Exposes["zz"] = Expose{Port: ptr(int64(443)), Backend: in.Exposes["web"].Backend}
		}), `exposes["zz"].port: "443": tcp/443 is already used by exposes["admin"]; pick another port`},
		{"exposes.port", ingressWith(func(in *Ingress) { in.Exposes["pg"] = in.Exposes["db"] }),
			`exposes["pg"].port: "5432": tcp/5432 is already used by exposes["db"]; give one of the two another port`},
		{"exposes.port", ingressWith(func(in *Ingress) {
			in.RedirectHTTP = ptr(true)
			in.Exposes["db"] = Expose{Port: ptr(int64(80)), Backend: in.Exposes["db"].Backend}
		}), at + `port: "80": tcp/80 is already used by redirect_http; pick another port`},
		{"exposes.dns_label", exposeWith("db", func(e *Expose) { e.DNSLabel = ptr("x") }),
			at + `dns_label: "x": a name of its own is for http exposes; remove it, or set mode = "http"`},
		{"exposes.dns_label", exposeWith("web", func(e *Expose) { e.DNSLabel = ptr("a_b") }),
			`exposes["web"].dns_label: "a_b": InvalidDNSName: a DNS label has letters, digits and inner hyphens only (RFC 1123), "a_b" has others; ` +
				`write one label, like shop-admin`},
		{"exposes.dns_label", ingressWith(func(in *Ingress) { in.Exposes["other"] = in.Exposes["web"] }),
			`exposes["web"].dns_label: at most one http expose goes without a dns_label, and exposes["other"] does already; give this one a dns_label`},
		{"exposes.dns_label", ingressWith(func(in *Ingress) {
			in.Exposes["other"] = Expose{Mode: ptr(ModeHTTP), DNSLabel: ptr("Shop"), Backend: in.Exposes["web"].Backend}
		}), `exposes["web"].dns_label: without a dns_label this has the ingress's own name, and exposes["other"] has it as its dns_label; ` +
			`give one of the two another dns_label`},
		{"exposes.dns_label", ingressWith(func(in *Ingress) {
			in.Exposes["x"] = Expose{Mode: ptr(ModeHTTP), DNSLabel: ptr("a"), Backend: in.Exposes["web"].Backend}
			in.Exposes["y"] = Expose{Mode: ptr(ModeHTTP), DNSLabel: ptr("A"), Backend: in.Exposes["web"].Backend}
		}), `exposes["y"].dns_label: "a": each http expose has its own name, and exposes["x"] has this one already; give this one another dns_label`},
		{"exposes.alias", exposeWith("db", func(e *Expose) { e.Alias = ptr(true) }),
			at + `alias: "true": an alias is for http exposes; remove it, or set mode = "http"`},
		{"exposes.proxy_protocol", exposeWith("db", func(e *Expose) { e.ProxyProtocol = ptr("v3") }),
			at + `proxy_protocol: "v3": the value is one of v1, v2; pick one of them`},
		{"exposes.proxy_protocol", exposeWith("web", func(e *Expose) { e.ProxyProtocol = ptr("v1") }),
			`exposes["web"].proxy_protocol: "v1": the PROXY protocol is for tcp exposes; remove it, or set mode = "tcp"`},
		{"exposes.backend.targets", exposeWith("db", func(e *Expose) { e.Backend.Targets = nil }),
			at + `backend.targets: a backend has at least one target; add targets = ["127.0.0.1:8080"]`},
		{"exposes.backend.targets", exposeWith("db", func(e *Expose) { e.Backend.Targets = []string{"a:1", "a:1"} }),
			at + `backend.targets[1]: "a:1": targets[0] is the same target; remove one of them`},
		{"exposes.backend.targets", target("http://a:1"), at + `backend.targets[0]: "http://a:1": a target is host:port without a scheme` + targetRemedy},
		{"exposes.backend.targets", target("a"), at + `backend.targets[0]: "a": a target is host:port, with an IPv6 address in brackets` + targetRemedy},
		{"exposes.backend.targets", target("a:0"), at + `backend.targets[0]: "a:0": a port is a number from 1 to 65535, not "0"` + targetRemedy},
		{"exposes.backend.targets", target(":1"), at + `backend.targets[0]: ":1": a target names its host; 127.0.0.1 is the agent's own` + targetRemedy},
		{"exposes.backend.targets", target("10.0.0.300:1"), at + `backend.targets[0]: "10.0.0.300:1": the last label of a DNS name has a letter ` +
			`(RFC 1123), or it would be read as an address` + targetRemedy},
		{"exposes.backend.targets", target("0.0.0.0:1"),
			at + `backend.targets[0]: "0.0.0.0:1": a target names its host; 127.0.0.1 is the agent's own` + targetRemedy},
		{"exposes.backend.targets", target("[::ffff:169.254.169.254]:80"), at + `backend.targets[0]: "[::ffff:169.254.169.254]:80": ` +
			`a target is no link-local or multicast address (cloud metadata lives there)` + targetRemedy},
		{"exposes.backend.targets", target("a_b:1"), at + `backend.targets[0]: "a_b:1": a DNS label has letters, digits and inner hyphens only ` +
			`(RFC 1123), "a_b" has others` + targetRemedy},
		{"exposes.backend.targets", target("169.254.169.254:80"),
			at + `backend.targets[0]: "169.254.169.254:80": a target is no link-local or multicast address (cloud metadata lives there)` + targetRemedy},
	}
}

func TestBadInput(t *testing.T) {
	for kind, rows := range map[Kind][]row{KindIssuer: issuerRows(), KindTailnet: tailnetRows(), KindIngress: ingressRows()} {
		for _, r := range rows {
			fields, rest := FieldErrors(r.bad().Validate())
			var got []string
			for _, f := range fields {
				got = append(got, f.Error())
			}
			if rest != nil || len(got) != 1 || got[0] != r.want {
				t.Errorf("%s %s:\n got %s\nwant %s (%v)", kind, r.attribute, strings.Join(got, "\n     "), r.want, rest)
			}
		}
	}
}

// Every attribute is in the table, or cannot be wrong.
func TestBadInputCoversEveryAttribute(t *testing.T) {
	const folded = "it has no value of its own: its attributes are checked"
	harmless := map[Kind]map[string]string{
		KindIngress: {"exposes.backend": folded}, KindTailnet: {"dns": folded, "policy": folded},
	}
	for kind, rows := range map[Kind][]row{KindIssuer: issuerRows(), KindTailnet: tailnetRows(), KindIngress: ingressRows()} {
		covered := map[string]bool{}
		for _, r := range rows {
			covered[r.attribute] = true
		}
		all := attributes(reflect.TypeOf(golden()[kind]).Elem(), "")
		for _, attribute := range all {
			if covered[attribute] == (harmless[kind][attribute] != "") {
				t.Errorf("%s: %s has bad input: %v, is excepted: %q", kind, attribute, covered[attribute], harmless[kind][attribute])
			}
			delete(covered, attribute)
			delete(harmless[kind], attribute)
		}
		for attribute := range covered {
			t.Errorf("%s: %s has bad input and is no attribute", kind, attribute)
		}
		for attribute := range harmless[kind] {
			t.Errorf("%s: the exception %s is no attribute", kind, attribute)
		}
	}
}

// attributes lists the attributes of a spec by their tfsdk tags.
func attributes(t reflect.Type, prefix string) []string {
	var out []string
	for f := range t.Fields() {
		name := prefix + f.Tag.Get("tfsdk")
		out = append(out, name)
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Map {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			out = append(out, attributes(inner, name+".")...)
		}
	}
	return out
}

func TestGoodInput(t *testing.T) {
	for name, object := range map[string]Object{
		"issuer": issuerWith(func(*Issuer) {})(), "tailnet": tailnetWith(func(*Tailnet) {})(),
		"ingress": ingressWith(func(in *Ingress) {
			in.Hostname = ptr("café")
			in.AllowFrom = []string{"*", "group:a", "autogroup:member", "tag:ci", "ann@example.com", "ann@", "100.64.0.7", "10.0.0.0/8", "fd7a::/48", "fd7a::1", "db-host", "10.example"}
			in.Exposes["v6"] = Expose{Port: ptr(int64(1)), Backend: Backend{Targets: []string{"[::1]:80", "shop.internal.:80"}}}
			in.Exposes["dns"] = Expose{Mode: ptr(ModeUDP), Port: ptr(int64(5432)), Backend: Backend{Targets: []string{"127.0.0.1:53"}}}
		})(),
	} {
		if err := object.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
