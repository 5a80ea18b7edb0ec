package blueprint_test

import (
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// The whole text of each verdict: attribute, value, rule and remedy.
func TestVerdicts(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, test := range []struct {
		name     string
		tailnet  *desired.Tailnet
		ingress  *desired.Ingress
		facts    blueprint.Facts
		verdicts []string
	}{
		{
			"N8: http without a template", corp(func(t *desired.Tailnet) { t.DNS = nil }), simple("dev", "a"), blueprint.Facts{}, []string{
				`refuses InvalidDNSName tailnet: "corp": an http expose needs a name, and the tailnet has no dns.ingress_name_template; ` +
					`set dns.ingress_name_template on the tailnet, or use mode = "tcp"`,
			},
		},
		{
			"N7: zone below the base domain", corp(), simple("dev", "a"), blueprint.Facts{BaseDomain: "tailnet.example.internal"}, []string{
				`refuses InvalidDNSName tailnet: "corp": its ingress_name_template lies in zone ` + base + `, which is at or below the MagicDNS ` +
					`base domain tailnet.example.internal, and clients never ask elsewhere for names there; ` +
					`put the template into a zone outside tailnet.example.internal`,
			},
		},
		{
			"N7: zone at the base domain", corp(), simple("dev", "a"), blueprint.Facts{BaseDomain: base}, []string{
				`refuses InvalidDNSName tailnet: "corp": its ingress_name_template lies in zone ` + base + `, which is at or below the MagicDNS ` +
					`base domain ` + base + `, and clients never ask elsewhere for names there; put the template into a zone outside ` + base,
			},
		},
		{"N7: zone above the base domain", corp(), simple("dev", "a"), blueprint.Facts{BaseDomain: "x." + base}, nil},
		{
			"N9: rendered name too long", corp(func(t *desired.Tailnet) { t.Policy.TagTemplate = ptr("tag:{name}") }), simple("dev", long), blueprint.Facts{}, []string{
				`refuses InvalidDNSName name: "ingress-` + long + `": a DNS label has at most 63 octets, "ingress-` + long +
					`" has 68; set hostname, or change the tailnet's hostname_template`,
				`refuses InvalidDNSName name: "` + long + `-dev.` + base + `": a DNS label has at most 63 octets, "` + long +
					`-dev" has 64; change it, or the tailnet's template`,
			},
		},
		{
			"P4: rendered tag", corp(func(t *desired.Tailnet) { t.Policy.TagTemplate = ptr("tag:{name}") }), simple("dev", "1a"), blueprint.Facts{}, []string{
				`refuses InvalidSpec name: "tag:1a": a tag is tag: and then letters, digits and hyphens, starting with a letter; ` +
					`rename the ingress, or change the tailnet's policy.tag_template`,
			},
		},
		{
			"N4: alias without a template", corp(func(t *desired.Tailnet) { t.DNS.IngressAliasTemplate = nil }), shop(), blueprint.Facts{}, []string{
				`refuses InvalidDNSName exposes["web"].alias: "true": an alias needs the tailnet's dns.ingress_alias_template, which is missing; ` +
					`set it on the tailnet, or remove alias`,
			},
		},
		{
			"N4: alias of another zone", corp(func(t *desired.Tailnet) { t.DNS.IngressAliasTemplate = ptr("{name}.example.org") }), shop(), blueprint.Facts{}, []string{
				`refuses InvalidDNSName exposes["web"].alias: "shop.example.org": an alias lies in the zone ` + base + `; change the tailnet's ingress_alias_template`,
			},
		},
		{
			"N3: a label that renders the own name", corp(), shop(func(in *desired.Ingress) {
				in.Exposes["admin"] = web(func(e *desired.Expose) { e.DNSLabel = ptr("shop") })
			}), blueprint.Facts{}, []string{
				`refuses DNSNameConflict exposes["web"].dns_label: "shop-shop-dev.` + base + `": exposes["admin"] of the same ingress publishes this ` +
					`name already; give one of the two another dns_label, or no alias`,
			},
		},
		{
			"P3: outside the allow-list", corp(), simple("dev", "a", func(in *desired.Ingress) { in.AllowFrom = []string{"group:a", "*"} }), blueprint.Facts{}, []string{
				`refuses PolicyRefused allow_from[1]: "*": tailnet corp lets only group:*, autogroup:member be given access; ` +
					`ask the tailnet's admin to add it to policy.allow_from_allowlist, or to write a grant to tag:ingress-a into the policy`,
			},
		},
		{
			"an undefined group", corp(), simple("dev", "a", func(in *desired.Ingress) { in.AllowFrom = []string{"group:shpo"} }),
			blueprint.Facts{Principals: &blueprint.Principals{Groups: []string{"group:shop", "group:ops"}}}, []string{
				`refuses PolicyRefused allow_from[0]: "group:shpo": the policy of tailnet corp does not define it; it defines group:shop, group:ops; ` +
					`did you mean "group:shop"? If not, define it in the policy first`,
			},
		},
		{
			"an undefined tag", corp(), simple("dev", "a", func(in *desired.Ingress) { in.Tags = []string{"tag:ingress-a", "tag:zzzzzzzz"} }),
			blueprint.Facts{Principals: &blueprint.Principals{}}, []string{
				`refuses PolicyRefused tags[1]: "tag:zzzzzzzz": the policy of tailnet corp does not define it; it defines tag:ingress-a, tag:postern; ` +
					`define it in the policy first`,
			},
		},
		{
			"T8: a tailnet that is not there", corp(), simple("dev", "a", func(in *desired.Ingress) { in.Tailnet = "crop" }), blueprint.Facts{}, []string{
				`refuses ReferenceMissing tailnet: "crop": there is no tailnet of this name; there is corp; ` +
					`did you mean "corp"? If not, declare it, and refer to postern_tailnet.<name>.name so that it comes first`,
			},
		},
		{
			"T8: an issuer that is not there", corp(),
			simple("dev", "a", func(in *desired.Ingress) { in.TLS = &desired.IngressTLS{Issuer: ptr("letsencrypt")} }), blueprint.Facts{}, []string{
				`refuses ReferenceMissing tls.issuer: "letsencrypt": there is no issuer of this name; there is apps; ` +
					`declare it, and refer to postern_issuer.<name>.name so that it comes first`,
			},
		},
		{
			"C1: nothing says where certificates come from", corp(func(t *desired.Tailnet) { t.DefaultIssuer = nil }), simple("dev", "a"), blueprint.Facts{}, []string{
				`refuses ReferenceMissing tls: an http expose needs a certificate, and nothing says where it comes from; ` +
					`set tls = { issuer = … } here, or default_issuer on tailnet corp`,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := declared(apps(), test.tailnet, test.ingress)
			s.Facts = map[string]blueprint.Facts{"corp": test.facts}
			in := blueprint.Compile(s).Ingress(test.ingress.Key())
			if got, want := verdict(in), strings.Join(test.verdicts, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if got := len(in.Refused()); got != len(test.verdicts) {
				t.Errorf("%d of %d verdicts refuse", got, len(test.verdicts))
			}
		})
	}
}

// P3: a grant that may not be given is left out whole: a part of it would show a peer in that no reviewer saw alone.
func TestRefusedPrincipalLeavesNoGrant(t *testing.T) {
	in := simple("dev", "a", func(in *desired.Ingress) { in.AllowFrom = []string{"group:a", "*"} })
	c := blueprint.Compile(declared(apps(), corp(), in))
	same(t, "grant", c.Ingress(in.Key()).Grant, nil)
	same(t, "withdrawn", c.Ingress(in.Key()).Withdrawn, false)
	c.Put(blueprint.Object{Spec: corp(func(t *desired.Tailnet) { t.Policy = nil }), Created: 2})
	same(t, "grant without an allow-list", c.Ingress(in.Key()).Grant.Src, []string{"*", "group:a"})
}

// A tag that another ingress brings is defined, and no longer when that is gone.
func TestTagOfAnotherIngressIsDefined(t *testing.T) {
	in := simple("dev", "a", func(in *desired.Ingress) { in.AllowFrom = []string{"tag:ingress-b"} })
	c := blueprint.Compile(declared(apps(), corp(func(t *desired.Tailnet) { t.Policy = nil }), in, simple("dev", "b")))
	c.SetFacts("corp", blueprint.Facts{Principals: &blueprint.Principals{}})
	same(t, "verdict", verdict(c.Ingress(in.Key())), "")
	c.Delete(simple("dev", "b").Key())
	same(t, "refused", len(c.Ingress(in.Key()).Refused()), 1)
}

// N9: a name that breaks the rules is published by nobody, and its neighbours stay.
func TestInvalidNameLeavesTheOthers(t *testing.T) {
	label := strings.Repeat("a", 60)
	own := shop(func(in *desired.Ingress) {
		in.TLS = &desired.IngressTLS{Layout: ptr(desired.LayoutSingle)}
		in.Exposes["admin"] = web(func(e *desired.Expose) { e.DNSLabel = &label })
	})
	c := blueprint.Compile(declared(apps(), corp(), own))
	in := c.Ingress(shopKey)
	same(t, "refused", len(in.Refused()), 1)
	same(t, "hosts", in.Hosts, []string{"shop-shop-dev." + base, "shop." + base})
	same(t, "certificate", in.Certificates[0].Names, in.Hosts)
	same(t, "endpoint", in.Endpoints["admin"], blueprint.Endpoint{DNSAliases: []string{}, Mode: desired.ModeHTTP, Port: 443})
	same(t, "withdrawn", in.Withdrawn, false)
	for id := range c.Claims()["corp"].Held {
		if strings.Contains(id, label) {
			t.Errorf("%s is claimed", id)
		}
	}
}

// T8: a default issuer that is not there is the tailnet's fault, and said once: not by each of its ingresses.
func TestMissingDefaultIssuer(t *testing.T) {
	in := simple("dev", "a")
	c := blueprint.Compile(declared(corp(), in))
	same(t, "verdict", verdict(c.Ingress(in.Key())), "")
	same(t, "certificates", len(c.Ingress(in.Key()).Certificates), 0)
	missing := c.Missing(corp())
	if len(missing) != 1 || missing[0].Path.String() != "default_issuer" || !missing[0].Refuse {
		t.Errorf("the tailnet's verdict is %+v", missing)
	}
	c.Put(blueprint.Object{Spec: apps()})
	same(t, "verdict once it is there", len(c.Missing(corp())), 0)
	same(t, "certificates once it is there", len(c.Ingress(in.Key()).Certificates), 1)
}

// P4: no ingress runs under the tag that owns the others' tags.
func TestAgentTagIsNoIngressTag(t *testing.T) {
	in := simple("dev", "postern", func(in *desired.Ingress) { in.AllowFrom = []string{"group:a"} })
	c := blueprint.Compile(declared(apps(), corp(func(t *desired.Tailnet) { t.Policy.TagTemplate = ptr("tag:{name}") }), in))
	same(t, "verdict", verdict(c.Ingress(in.Key())), `refuses TagConflict name: "tag:postern": this is the tailnet's policy.agent_tag, `+
		`which no ingress has; rename the ingress, or change the tailnet's policy.tag_template`)
	same(t, "withdrawn", c.Ingress(in.Key()).Withdrawn, true)
	same(t, "policy entries", len(c.Policy("corp")), 1)
}

// IDNA and case are normalised before names are compared (N9).
func TestNamesAreComparedAsDNSHoldsThem(t *testing.T) {
	upper := corp(func(t *desired.Tailnet) { t.DNS.IngressNameTemplate = ptr("{name}.{namespace}.Example.INTERNAL") })
	label := func(text string) func(*desired.Ingress) {
		return func(in *desired.Ingress) { in.Exposes["web"] = web(func(e *desired.Expose) { e.DNSLabel = &text }) }
	}
	a, b := simple("dev", "a", label("Café")), simple("dev", "b", label("xn--caf-dma"))
	c := blueprint.Compile(declared(apps(), upper, a, b))
	same(t, "hosts", c.Ingress(a.Key()).Hosts, []string{"xn--caf-dma.dev.example.internal"})
	same(t, "problem", c.Ingress(b.Key()).Problems[0].Reason, desired.ReasonDNSNameConflict)
	same(t, "path", c.Ingress(b.Key()).Problems[0].Path.String(), `exposes["web"].dns_label`)
}

func TestMissing(t *testing.T) {
	c := blueprint.Compile(declared(apps()))
	same(t, "of a tailnet with its issuer", len(c.Missing(corp())), 0)
	problems := c.Missing(corp(func(t *desired.Tailnet) { t.DefaultIssuer = ptr("app") }))
	same(t, "of another", problems[0].Error(), `default_issuer: "app": there is no issuer of this name; there is apps; `+
		`did you mean "apps"? If not, declare it, and refer to postern_issuer.<name>.name so that it comes first`)
	same(t, "with none", blueprint.Compile(blueprint.Snapshot{}).Missing(corp())[0].Rule, "there is no issuer of this name; there is none")
}
