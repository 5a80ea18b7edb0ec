package blueprint_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

func ptr[T any](v T) *T { return &v }

const base = "prod-1.tailnet.example.internal"

func corp(change ...func(*desired.Tailnet)) *desired.Tailnet {
	t := &desired.Tailnet{
		Name: "corp", Headscale: &desired.Headscale{URL: "https://headscale.example.internal", APIKeyFile: ptr("/key")},
		DNS: &desired.TailnetDNS{
			IngressNameTemplate: ptr("{name}-{namespace}." + base), IngressAliasTemplate: ptr("{name}." + base),
		},
		Policy:        &desired.TailnetPolicy{Mode: ptr("managed"), AllowFromAllowlist: []string{"group:*", "autogroup:member"}},
		DefaultIssuer: ptr("apps"),
	}
	for _, f := range change {
		f(t)
	}
	return t
}

func apps() *desired.Issuer {
	return &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}}
}

func web(change ...func(*desired.Expose)) desired.Expose {
	e := desired.Expose{Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{"127.0.0.1:8080"}}}
	for _, f := range change {
		f(&e)
	}
	return e
}

// shop is the ingress that the README begins with.
func shop(change ...func(*desired.Ingress)) *desired.Ingress {
	in := &desired.Ingress{
		Name: "shop", Namespace: ptr("shop-dev"), Tailnet: "corp", AllowFrom: []string{"group:shop"},
		Exposes: map[string]desired.Expose{
			"web":      web(func(e *desired.Expose) { e.Alias = ptr(true) }),
			"admin":    web(func(e *desired.Expose) { e.DNSLabel = ptr("shop-admin") }),
			"postgres": {Port: ptr(int64(5432)), Backend: desired.Backend{Targets: []string{"10.0.0.7:5432"}}},
		},
	}
	for _, f := range change {
		f(in)
	}
	return in
}

// simple is an ingress with one http expose and the ingress's own name.
func simple(namespace, name string, change ...func(*desired.Ingress)) *desired.Ingress {
	in := &desired.Ingress{Name: name, Namespace: &namespace, Tailnet: "corp", Exposes: map[string]desired.Expose{"web": web()}}
	for _, f := range change {
		f(in)
	}
	return in
}

// declared gives objects ages in their order.
func declared(specs ...desired.Object) blueprint.Snapshot {
	var s blueprint.Snapshot
	for i, spec := range specs {
		s.Objects = append(s.Objects, blueprint.Object{Spec: spec, Created: int64(i + 1), Revision: int64(i + 1)})
	}
	return s
}

// verdict writes an ingress's problems down, one a line, each marked with whether it refuses.
func verdict(in *blueprint.Ingress) string {
	var lines []string
	for _, p := range in.Problems {
		mark := "reports"
		if p.Refuse {
			mark = "refuses"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", mark, p.Reason, p.FieldError.Error()))
	}
	return strings.Join(lines, "\n")
}

func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

var shopKey = shop().Key()

func TestShopComesToWhatTheReadmeSays(t *testing.T) {
	in := blueprint.Compile(declared(apps(), corp(), shop())).Ingress(shopKey)
	const own, alias, admin = "shop-shop-dev." + base, "shop." + base, "shop-admin-shop-dev." + base
	same(t, "verdict", verdict(in), "")
	same(t, "dns_name", in.DNSName, own)
	same(t, "hostname", in.Hostname, "ingress-shop")
	same(t, "tag", in.Tag, "tag:ingress-shop")
	same(t, "tags", in.Tags, []string{"tag:ingress-shop"})
	same(t, "hosts", in.Hosts, []string{own, admin, alias})
	same(t, "endpoints", in.Endpoints, map[string]blueprint.Endpoint{
		"web":      {DNSName: own, DNSAliases: []string{alias}, URL: "https://" + own, Mode: desired.ModeHTTP, Port: 443},
		"admin":    {DNSName: admin, DNSAliases: []string{}, URL: "https://" + admin, Mode: desired.ModeHTTP, Port: 443},
		"postgres": {DNSName: own, DNSAliases: []string{}, URL: "tcp://" + own + ":5432", Mode: desired.ModeTCP, Port: 5432},
	})
	same(t, "routes", in.Routes, map[string]string{own: "web", alias: "web", admin: "admin"})
	issuer := apps().Key()
	same(t, "certificates", in.Certificates, []blueprint.Certificate{
		{ID: own, Issuer: issuer, Names: []string{own}},
		{ID: admin, Issuer: issuer, Names: []string{admin}},
		{ID: alias, Issuer: issuer, Names: []string{alias}},
	})
	same(t, "grant", in.Grant, &blueprint.Grant{
		Src: []string{"group:shop"}, Dst: []string{"tag:ingress-shop"}, IP: []string{"tcp:443", "tcp:5432"},
	})
	same(t, "withdrawn", in.Withdrawn, false)
}

// X4: one certificate for all names has the ingress's own name first.
func TestSingleLayoutAsksForOneCertificate(t *testing.T) {
	own := shop(func(in *desired.Ingress) { in.TLS = &desired.IngressTLS{Layout: ptr(desired.LayoutSingle)} })
	in := blueprint.Compile(declared(apps(), corp(), own)).Ingress(shopKey)
	same(t, "certificates", in.Certificates, []blueprint.Certificate{{ID: "single", Issuer: apps().Key(), Names: in.Hosts}})
}

// N5, X5: once every http expose has a label, the ingress's own name is no host, and is still the first on a certificate.
func TestOwnNameIsNoHostOnceEveryExposeHasALabel(t *testing.T) {
	labelled := simple("dev", "shop", func(in *desired.Ingress) {
		in.Exposes["web"] = web(func(e *desired.Expose) { e.DNSLabel = ptr("a") })
	})
	in := blueprint.Compile(declared(apps(), corp(), labelled)).Ingress(labelled.Key())
	same(t, "hosts", in.Hosts, []string{"a-dev." + base})
	same(t, "names", in.Names(), []string{"shop-dev." + base, "a-dev." + base})
	same(t, "first certificate", in.Certificates[0].ID, "shop-dev."+base)
	same(t, "routes", in.Routes, map[string]string{"a-dev." + base: "web"})
}

// N1, N2: the DNS name does not follow the hostname.
func TestHostnameChangesNoDNSName(t *testing.T) {
	in := blueprint.Compile(declared(apps(), corp(), simple("dev", "shop", func(in *desired.Ingress) { in.Hostname = ptr("Front") }))).
		Ingress(simple("dev", "shop").Key())
	same(t, "hostname", in.Hostname, "front")
	same(t, "dns_name", in.DNSName, "shop-dev."+base)
}

// P3: what redirect_http and udp open is in the grant, and declared tags are in the node's tags but not in the grant.
func TestGrantHoldsEveryPort(t *testing.T) {
	own := shop(func(in *desired.Ingress) {
		in.RedirectHTTP, in.Tags = ptr(true), []string{"tag:internal-apps", "tag:a"}
		in.AllowFrom = []string{"group:z", "autogroup:member", "group:z"}
		in.Exposes["dns"] = desired.Expose{Mode: ptr(desired.ModeUDP), Port: ptr(int64(53)), Backend: desired.Backend{Targets: []string{"127.0.0.1:53"}}}
	})
	in := blueprint.Compile(declared(apps(), corp(), own)).Ingress(shopKey)
	same(t, "grant", in.Grant, &blueprint.Grant{
		Src: []string{"autogroup:member", "group:z"}, Dst: []string{"tag:ingress-shop"}, IP: []string{"tcp:443", "tcp:5432", "tcp:80", "udp:53"},
	})
	same(t, "tags", in.Tags, []string{"tag:a", "tag:ingress-shop", "tag:internal-apps"})
	none := blueprint.Compile(declared(apps(), corp(), shop(func(in *desired.Ingress) { in.AllowFrom = []string{} }))).Ingress(shopKey)
	same(t, "grant of an empty list", none.Grant, nil)
}

// P4: the policy holds the agent's tag, each ingress's tag owned by it, and the grants.
func TestPolicyEntries(t *testing.T) {
	tailnet := desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: "corp"}
	other := simple("dev", "other")
	c := blueprint.Compile(declared(apps(), corp(), shop(), other))
	want := []blueprint.PolicyEntry{
		{Owner: tailnet, Tag: "tag:postern", Owners: []string{}},
		{Owner: other.Key(), Tag: "tag:ingress-other", Owners: []string{"tag:postern"}},
		{Owner: shopKey, Tag: "tag:ingress-shop", Owners: []string{"tag:postern"}},
		{Owner: shopKey, Grant: c.Ingress(shopKey).Grant},
	}
	same(t, "entries", c.Policy("corp"), want)
	// A deleting ingress keeps its entries until its node is gone (P11).
	c.Put(blueprint.Object{Spec: shop(), Created: 3, Deleting: true})
	same(t, "entries while deleting", c.Policy("corp"), want)
	c.Put(blueprint.Object{Spec: shop(), Created: 3, Deleting: true, Released: true})
	same(t, "entries once released", c.Policy("corp"), want[:2])
	c.Put(blueprint.Object{Spec: corp(), Created: 2, Deleting: true})
	same(t, "entries of an ending tailnet", c.Policy("corp"), nil)
	same(t, "entries of no tailnet", c.Policy("other"), nil)
}

// T8: who refers to an object, so that it is not deleted under them.
func TestUsers(t *testing.T) {
	private := &desired.Issuer{Name: "apps", Namespace: ptr("shop-dev"), CA: &desired.CAIssuer{Create: ptr(true)}}
	own := shop(func(in *desired.Ingress) { in.TLS = &desired.IngressTLS{Issuer: ptr("apps")} })
	c := blueprint.Compile(declared(apps(), corp(), own, simple("dev", "other")))
	same(t, "users of the tailnet", c.Users(corp().Key()), []desired.Key{simple("dev", "other").Key(), shopKey})
	same(t, "users of the issuer", c.Users(apps().Key()), []desired.Key{shopKey, corp().Key()})
	same(t, "users of an ingress", c.Users(shopKey), nil)
	// C5: an issuer of the ingress's namespace comes before one that serves all.
	c.Put(blueprint.Object{Spec: private, Created: 9})
	same(t, "users of the namespace's issuer", c.Users(private.Key()), []desired.Key{shopKey})
	same(t, "users of the other issuer", c.Users(apps().Key()), []desired.Key{corp().Key()})
	same(t, "issuer", c.Ingress(shopKey).Certificates[0].Issuer, private.Key())
}

func TestObjectsAreListedInOrder(t *testing.T) {
	c := blueprint.Compile(declared(apps(), corp(), shop(), simple("dev", "b"), simple("dev", "a")))
	want := []desired.Key{simple("dev", "a").Key(), simple("dev", "b").Key(), shopKey}
	same(t, "ingresses", c.Ingresses("corp"), want)
	var got []desired.Key
	for _, o := range c.Objects(desired.KindIngress) {
		got = append(got, o.Spec.Key())
	}
	same(t, "objects", got, want)
	if c.Ingress(simple("dev", "none").Key()) != nil {
		t.Error("an ingress that is not there comes to something")
	}
}

// What is answered is the caller's: changing it changes nothing that is kept.
func TestAnswersAreTheCallers(t *testing.T) {
	s := declared(apps(), corp(), shop())
	c := blueprint.Compile(s)
	first, claims := c.Ingress(shopKey), c.Claims()
	first.Hosts[0], first.Tags[0], first.Routes["x"] = "x", "x", "x"
	first.Endpoints["admin"] = blueprint.Endpoint{}
	first.Grant.Src[0], first.Endpoints["web"].DNSAliases[0] = "x", "x"
	delete(first.Endpoints, "web")
	clear(claims["corp"].Held)
	same(t, "ingress", c.Ingress(shopKey), blueprint.Compile(s).Ingress(shopKey))
	same(t, "claims", c.Claims(), blueprint.Compile(s).Claims())
	if !slices.Contains(c.Ingress(shopKey).Hosts, "shop-shop-dev."+base) {
		t.Error("the host is gone")
	}
}
