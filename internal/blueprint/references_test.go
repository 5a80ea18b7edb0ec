package blueprint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// T8: what is being deleted is no longer there to refer to, except for what is ending itself.
func TestNothingNewRefersToWhatIsGoing(t *testing.T) {
	in := simple("dev", "a")
	c := blueprint.Compile(declared(apps(), in))
	c.Put(blueprint.Object{Spec: corp(), Created: 1, Deleting: true})
	same(t, "verdict", verdict(c.Ingress(in.Key())), `refuses ReferenceMissing tailnet: "corp": the tailnet of this name is being deleted; `+
		`refer to another, or wait until it is gone and declare it anew`)
	c.Put(blueprint.Object{Spec: in, Created: 2, Deleting: true})
	same(t, "verdict of what is ending", verdict(c.Ingress(in.Key())), "")
}

// A message names what is there once each, and not a thousand of it.
func TestMessagesListWhatIsThere(t *testing.T) {
	in := simple("dev", "a", func(in *desired.Ingress) { in.TLS = &desired.IngressTLS{Issuer: ptr("apple")} })
	private := apps()
	private.Namespace = ptr("dev")
	c := blueprint.Compile(declared(apps(), private, corp(), in))
	got := verdict(c.Ingress(in.Key()))
	if want := `there is no issuer of this name; there is apps; did you mean "apps"?`; !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for i := range 25 {
		put(c, int64(10+i), &desired.Issuer{Name: fmt.Sprintf("i%02d", i), CA: &desired.CAIssuer{Create: ptr(true)}})
	}
	got = verdict(c.Ingress(in.Key()))
	if want := `i17, i18 and 6 more; did you mean "apps"?`; !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// N7: a zone above the base domain is fine, and yet a name in it can lie below.
func TestNameBelowTheBaseDomain(t *testing.T) {
	zone := corp(func(t *desired.Tailnet) {
		t.DNS = &desired.TailnetDNS{
			IngressNameTemplate: ptr("{name}.{namespace}.example.internal"), IngressAliasTemplate: ptr("{name}.example.internal"),
		}
	})
	s := declared(apps(), zone, simple("net", "a"), simple("dev", "b"), simple("dev", "net", func(in *desired.Ingress) {
		in.Exposes["web"] = web(func(e *desired.Expose) { e.Alias = ptr(true) })
	}))
	s.Facts = map[string]blueprint.Facts{"corp": {BaseDomain: "Net.example.internal."}}
	c := blueprint.Compile(s)
	const rest = `: it is at or below the MagicDNS base domain net.example.internal, and clients never ask elsewhere for names there; ` +
		`give it another name, or put the tailnet's templates into a zone outside net.example.internal`
	same(t, "name", verdict(c.Ingress(simple("net", "a").Key())), `refuses InvalidDNSName name: "a.net.example.internal"`+rest)
	same(t, "alias", verdict(c.Ingress(simple("dev", "net").Key())), `refuses InvalidDNSName exposes["web"].alias: "net.example.internal"`+rest)
	same(t, "elsewhere", verdict(c.Ingress(simple("dev", "b").Key())), "")
}

// P13: the tag of an ingress that is withdrawn is not in the policy, and a grant that names it would have the document refused.
func TestTagOfAWithdrawnIngressIsNotDefined(t *testing.T) {
	first := simple("dev", "a", func(in *desired.Ingress) { in.Hostname = ptr("front") })
	second := simple("dev", "b", func(in *desired.Ingress) { in.Hostname = ptr("front") })
	reader := simple("dev", "c", func(in *desired.Ingress) { in.AllowFrom = []string{"tag:ingress-b"} })
	s := declared(apps(), corp(func(t *desired.Tailnet) { t.Policy = nil }), first, second, reader)
	s.Facts = map[string]blueprint.Facts{"corp": {Principals: &blueprint.Principals{}}}
	c := blueprint.Compile(s)
	same(t, "verdict", verdict(c.Ingress(reader.Key())), `refuses PolicyRefused allow_from[0]: "tag:ingress-b": the policy of tailnet corp does not `+
		`define it; it defines tag:ingress-a, tag:ingress-c, tag:postern; did you mean "tag:ingress-a"? If not, define it in the policy first`)
	c.Delete(first.Key())
	same(t, "verdict once it runs", verdict(c.Ingress(reader.Key())), "")
}
