package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// edit sets a value in a configuration's JSON by its path with dots; nil removes it.
func edit(m map[string]any, path string, v any) {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		if v == nil {
			delete(m, name)
			return
		}
		m[name] = v
		return
	}
	next, ok := m[name].(map[string]any)
	if !ok {
		next = map[string]any{}
		m[name] = next
	}
	edit(next, rest, v)
}

func list(v ...any) []any { return v }

// Every bad value is refused when the configuration is validated, pointed at its attribute, and the text has the value, the
// rule and the remedy.
func TestBadInput(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		kind, path string
		value      any
		at         string // where the error points; the path where empty
		says       []string
	}{
		{kindIngress, "name", "Shop", "", []string{`"Shop"`, "lower-case", "write it like"}},
		{kindIngress, "name", long, "", []string{long, "at most 63", "write it like"}},
		{kindIngress, "namespace", "a b", "", []string{`"a b"`, "lower-case", "write it like"}},
		{kindIngress, "tailnet", "", "", []string{"a name is needed", "write it like"}},
		{kindIngress, "hostname", "a.b", "", []string{`"a.b"`, "no dot", "write one label"}},
		{kindIngress, "allow_from", list("group:"), "", []string{`"group:"`, "principal", "write it like"}},
		{kindIngress, "allow_from", list("10.0.0.1/8"), "", []string{`"10.0.0.1/8"`, "no host bits", "10.0.0.0/8"}},
		{kindIngress, "allow_from", list(nil), "", []string{"null", "leave it out"}},
		{kindIngress, "tags", list("web"), "", []string{`"web"`, "tag:", "write it like"}},
		{kindIngress, "tls.layout", "both", "", []string{`"both"`, "per-host, single", "pick one"}},
		{kindIngress, "tls.issuer", "A", "", []string{`"A"`, "lower-case", "write it like"}},
		{kindIngress, "redirect_http", true, "", []string{`"true"`, "http expose", "remove redirect_http"}},
		{kindIngress, "wait_for", "soon", "", []string{`"soon"`, "ready, registered, none", "pick one"}},
		{kindIngress, "timeouts.create", "fast", "", []string{"fast"}},
		{kindIngress, "exposes", map[string]any{}, "", []string{"exposes something", "add exposes"}},
		{kindIngress, "exposes.pg", map[string]any{"port": 1.0}, "exposes.pg.backend", []string{`exposes["pg"].backend`, "is needed", "add it"}},
		{kindIngress, "exposes.pg.mode", "quic", "", []string{`"quic"`, "tcp, udp, http", "pick one"}},
		{kindIngress, "exposes.pg.port", 0.0, "", []string{`"0"`, "1 to 65535", "pick"}},
		{kindIngress, "exposes.pg.port", nil, "", []string{"has a port", "add the port"}},
		{kindIngress, "exposes.web", map[string]any{"mode": "http", "port": 80.0, "backend": map[string]any{"targets": list("a:1")}}, "exposes.web.port", []string{`"80"`, "443", "leave port out"}},
		{kindIngress, "exposes.pg.dns_label", "x", "", []string{`"x"`, "http exposes", "remove it"}},
		{kindIngress, "exposes.pg.alias", true, "", []string{`"true"`, "http exposes", "remove it"}},
		{kindIngress, "exposes.pg.proxy_protocol", "v3", "", []string{`"v3"`, "v1, v2", "pick one"}},
		{kindIngress, "exposes.pg.backend.targets", list(), "", []string{"at least one target", "add targets"}},
		{kindIngress, "exposes.pg.backend.targets", list("http://a:1"), "exposes.pg.backend.targets.0", []string{`"http://a:1"`, "without a scheme", "write it like"}},
		{kindIngress, "exposes.pg.backend.targets", list("169.254.169.254:80"), "exposes.pg.backend.targets.0", []string{"169.254.169.254:80", "link-local", "write it like"}},
		{kindIngress, "exposes.Bad", map[string]any{"port": 2.0, "backend": map[string]any{"targets": list("a:1")}}, "", []string{`"Bad"`, "lower-case", "write it like"}},
		{kindTailnet, "name", "Corp", "", []string{`"Corp"`, "lower-case", "write it like"}},
		{kindTailnet, "headscale", nil, "", []string{"control plane", "add headscale"}},
		{kindTailnet, "headscale.url", "ftp://x", "", []string{`"ftp://x"`, "https://", "server_url"}},
		{kindTailnet, "headscale.ca_pem", "x", "", []string{"PEM", "give the CA"}},
		{kindTailnet, "headscale.api_key_file", "key", "", []string{`"key"`, "absolute", "start it with /"}},
		{kindTailnet, "headscale.api_key_file", nil, "headscale.api_key_wo", []string{"exactly one place", "set one of the two"}},
		{kindTailnet, "headscale.api_key_wo_version", 1.0, "headscale.api_key_file", []string{"exactly one place", "remove one"}},
		{kindTailnet, "dns.ingress_name_template", "{nme}.zone.test", "", []string{"{nme}", "placeholders", "write it like"}},
		{kindTailnet, "dns.ingress_name_template", "zone.test", "", []string{`"zone.test"`, "contains {name}", "write it like"}},
		{kindTailnet, "dns.ingress_alias_template", "{name}.other.test", "", []string{"{name}.other.test", "zone.test", "same zone"}},
		{kindTailnet, "dns.hostname_template", "{name}.x", "", []string{"{name}.x", "no dot", "write it like"}},
		{kindTailnet, "policy.mode", "external", "", []string{`"external"`, "managed", "leave it out"}},
		{kindTailnet, "policy.allow_from_allowlist", list("["), "", []string{`"["`, "pattern", "write it like"}},
		{kindTailnet, "policy.tag_template", "{name}", "", []string{"{name}", "tag:", "write it like"}},
		{kindTailnet, "policy.agent_tag", "postern", "", []string{`"postern"`, "tag:", "write it like"}},
		{kindTailnet, "default_issuer", "Apps", "", []string{`"Apps"`, "lower-case", "write it like"}},
		{"postern_issuer", "name", "_", "", []string{`"_"`, "lower-case", "write it like"}},
		{"postern_issuer", "namespace", "_", "", []string{`"_"`, "lower-case", "write it like"}},
		{"postern_issuer", "ca", nil, "", []string{"says how", "add ca"}},
		{"postern_issuer", "ca.create", false, "ca", []string{"create = true", "add ca"}},
		{"postern_issuer", "ca.certificate_file", "/a", "ca", []string{"come together", "add the other"}},
	} {
		c := newCore(t, "unix:///nowhere", "test")
		config := map[string]any{}
		switch test.kind {
		case kindIngress:
			for path, v := range map[string]any{"name": "shop", "tailnet": "corp", "exposes.pg.port": 5432.0, "exposes.pg.backend.targets": list("a:1")} {
				edit(config, path, v)
			}
		case kindTailnet:
			for path, v := range map[string]any{"name": "corp", "headscale.url": "https://h.test", "headscale.api_key_file": "/key", "dns.ingress_name_template": "{name}.zone.test"} {
				edit(config, path, v)
			}
		default:
			edit(config, "name", "apps")
			edit(config, "ca.create", true)
		}
		if err := c.open().validate(test.kind, fromJSON(c.types[test.kind], config)); err != nil {
			t.Fatalf("the good configuration of %s is refused: %v", test.kind, err)
		}
		edit(config, test.path, test.value)
		pointsAt(t, c, test.kind, config, test.path, test.at, test.says)
	}
}

func pointsAt(t *testing.T, c *core, kind string, config map[string]any, path, at string, says []string) {
	t.Helper()
	answer, err := c.open().server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: kind, Config: c.dynamic(c.types[kind], fromJSON(c.types[kind], config)),
		ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if at == "" {
		at = path
	}
	var all []string
	for _, d := range answer.Diagnostics {
		var steps []string
		for _, s := range d.Attribute.Steps() {
			steps = append(steps, fmt.Sprint(s))
		}
		text := strings.Join(steps, ".") + ": " + d.Summary + ": " + d.Detail
		all = append(all, text)
		if strings.Join(steps, ".") != at {
			continue
		}
		missing := false
		for _, part := range says {
			missing = missing || !strings.Contains(text, part)
		}
		if !missing {
			return
		}
	}
	t.Errorf("%s.%s: no error at %s says %q; there is\n%s", kind, path, at, says, strings.Join(all, "\n"))
}

// The provider's own configuration names attribute, value, rule and remedy too, and has its environment.
func TestProviderConfiguration(t *testing.T) {
	s := servertest.Start(t)
	for _, test := range []struct {
		config map[string]any
		env    map[string]string
		says   []string
	}{
		{map[string]any{"endpoint": s.Endpoint}, nil, nil},
		{nil, map[string]string{"POSTERN_ENDPOINT": s.Endpoint}, nil},
		{map[string]any{"endpoint": "http://127.0.0.1:1"}, nil, []string{"endpoint", `"http://127.0.0.1:1"`, "never reached over plain TCP", "https://"}},
		{map[string]any{"endpoint": "https://a.test"}, nil, []string{"endpoint", "a token is needed", "postern token create"}},
		{map[string]any{"endpoint": "https://a.test"}, map[string]string{"POSTERN_TOKEN": "t"}, nil},
		{map[string]any{"ca_pem": "x", "ca_file": "/y"}, nil, []string{"ca_file", `"/y"`, "one place", "remove one"}},
		{map[string]any{"ca_file": "/not/there"}, nil, []string{"ca_file", "/not/there", "no such file", "POSTERN_CA_FILE"}},
		{map[string]any{"endpoint": "https://a.test", "token": "t", "ca_pem": "x"}, nil, []string{"CA certificate", "PEM"}},
	} {
		_, err := configure(t, test.config, test.env)
		if test.says == nil && err != nil || test.says != nil && err == nil {
			t.Errorf("%v with %v: %v", test.config, test.env, err)
			continue
		}
		if test.says != nil {
			wantError(t, err, test.says...)
		}
	}
}
