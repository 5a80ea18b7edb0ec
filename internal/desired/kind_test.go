package desired

import (
	"reflect"
	"slices"
	"testing"
)

func TestKeysAreNamed(t *testing.T) {
	for _, test := range []struct {
		object           Object
		id, text, stored string
	}{
		{&Issuer{Name: "apps"}, "apps", "issuer apps", "issuer/-/apps"},
		{&Issuer{Name: "apps", Namespace: ptr("dev")}, "dev/apps", "issuer dev/apps", "issuer/dev/apps"},
		{&Tailnet{Name: "corp"}, "corp", "tailnet corp", "tailnet/-/corp"},
		{&Ingress{Name: "shop"}, "default/shop", "ingress default/shop", "ingress/default/shop"},
		{&Ingress{Name: "shop", Namespace: ptr("dev")}, "dev/shop", "ingress dev/shop", "ingress/dev/shop"},
	} {
		key := test.object.Key()
		if key.ID() != test.id || key.String() != test.text || key.Path() != test.stored {
			t.Errorf("%+v: %s, %s, %s", test, key.ID(), key, key.Path())
		}
		if got, err := ParseID(key.Kind, key.ID()); err != nil || got != key {
			t.Errorf("%s read back is %+v: %v", key.ID(), got, err)
		}
		if got, err := ParseKey(key.Kind, key.Namespace, key.Name); err != nil || got != key {
			t.Errorf("%s read back is %+v: %v", key.Path(), got, err)
		}
	}
	keys := []Key{{KindTailnet, "-", "a"}, {KindIngress, "b", "a"}, {KindIngress, "a", "b"}, {KindIngress, "a", "a"}}
	slices.SortFunc(keys, Key.Compare)
	if want := []Key{{KindIngress, "a", "a"}, {KindIngress, "a", "b"}, {KindIngress, "b", "a"}, {KindTailnet, "-", "a"}}; !slices.Equal(keys, want) {
		t.Errorf("the order is %v", keys)
	}
}

// The whole text of each refusal of a key.
func TestKeysThatNoObjectCanHave(t *testing.T) {
	for _, test := range []struct {
		kind                  Kind
		namespace, name, want string
	}{
		{"vault", "-", "a", `kind "vault": there is no such kind; there are issuer, tailnet, ingress`},
		{KindIngress, "-", "a", `ingress a: a namespace is needed, for example default/a`},
		{KindTailnet, "dev", "a", `tailnet dev/a: a tailnet has no namespace; use "a"`},
		{KindIngress, "dev", "A", `ingress name "A": a name has lower-case letters, digits and inner hyphens only (RFC 1123)`},
		{KindIngress, "", "a", `ingress namespace "": a name is needed`},
	} {
		if got, err := ParseKey(test.kind, test.namespace, test.name); err == nil || err.Error() != test.want {
			t.Errorf("%+v\n got %v\nwant %s", got, err, test.want)
		}
	}
}

// Every kind can be made, has a name and a key of its own, and is found.
func TestKinds(t *testing.T) {
	seen := map[Kind]bool{}
	for _, info := range Kinds() {
		object := info.New()
		if key := object.Key(); key.Kind != info.Kind || seen[info.Kind] {
			t.Errorf("%s has the key %+v", info.Kind, key)
		}
		seen[info.Kind] = true
		if found, ok := Lookup(info.Kind); !ok || found.Namespace != info.Namespace {
			t.Errorf("%s is not found", info.Kind)
		}
		for _, ref := range golden()[info.Kind].References() {
			if len(ref.Candidates) == 0 || !seen[ref.Candidates[0].Kind] {
				t.Errorf("%s refers to a kind that comes later: %+v", info.Kind, ref)
			}
		}
	}
	if _, ok := Lookup("vault"); ok {
		t.Error("a kind that is not there is found")
	}
	err := &UnknownFieldError{Kind: KindIngress, Field: "front"}
	if want := `ingress: field "front" is not known to this version; upgrade the side that is older, or leave the field out`; err.Error() != want {
		t.Errorf("got %s", err)
	}
}

// T8, C5: what an object refers to, an issuer of the ingress's namespace before one that serves all.
func TestReferences(t *testing.T) {
	want := map[string][]Key{
		"tailnet":        {{KindTailnet, "-", "corp"}},
		"tls.issuer":     {{KindIssuer, "shop-dev", "apps"}, {KindIssuer, "-", "apps"}},
		"default_issuer": {{KindIssuer, "-", "apps"}},
	}
	got := map[string][]Key{}
	for _, object := range golden() {
		for _, ref := range object.References() {
			got[ref.Path.String()] = ref.Candidates
			if ref.Value != ref.Candidates[0].Name {
				t.Errorf("%s has the value %q", ref.Path, ref.Value)
			}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if refs := (&Tailnet{}).References(); refs != nil {
		t.Errorf("a tailnet without default_issuer refers to %v", refs)
	}
}

// C9: a secret is given out by name, and only where it is set.
func TestSecretsAreGivenByName(t *testing.T) {
	key := ptr(Secret("k"))
	for _, test := range []struct {
		object Object
		want   map[string]*Secret
	}{
		{&Tailnet{Headscale: &Headscale{APIKey: key}}, map[string]*Secret{SecretAPIKey: key}},
		{&Tailnet{Headscale: &Headscale{}}, nil}, {&Tailnet{}, nil}, {&Ingress{}, nil}, {&Issuer{}, nil},
	} {
		if got := test.object.Secrets(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v has the secrets %v", test.object, got)
		}
	}
}

// Defaults are applied where a spec is read.
func TestDefaults(t *testing.T) {
	bare := &Tailnet{}
	for what, got := range map[string][2]string{
		"name template": {string(bare.NameTemplate()), ""}, "alias template": {string(bare.AliasTemplate()), ""},
		"hostname template": {string(bare.HostnameTemplate()), "ingress-{name}"}, "tag template": {string(bare.TagTemplate()), "tag:ingress-{name}"},
		"agent tag": {bare.AgentTag(), "tag:postern"}, "namespace": {(&Ingress{}).EffectiveNamespace(), "default"},
		"mode": {string(Expose{}.EffectiveMode()), "tcp"}, "protocol": {Expose{}.Protocol(), "tcp"},
		"protocol of udp": {Expose{Mode: ptr(ModeUDP)}.Protocol(), "udp"}, "protocol of http": {Expose{Mode: ptr(ModeHTTP)}.Protocol(), "tcp"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", what, got[0], got[1])
		}
	}
	if (Expose{}).EffectivePort() != 0 || (Expose{Mode: ptr(ModeHTTP)}).EffectivePort() != 443 || (Expose{Port: ptr(int64(7))}).EffectivePort() != 7 {
		t.Error("a port is not what it should be")
	}
}

// P3: absent lets in any, empty none, and a pattern what it matches.
func TestAllowlist(t *testing.T) {
	for _, test := range []struct {
		list      []string
		principal string
		want      bool
	}{
		{nil, "*", true}, {[]string{}, "group:a", false}, {[]string{"group:*"}, "group:a", true}, {[]string{"group:*"}, "tag:a", false},
		{[]string{"x", "autogroup:member"}, "autogroup:member", true}, {[]string{"*"}, "*", true}, {[]string{"group:a"}, "group:ab", false},
		{[]string{Unknown}, "group:a", true}, {[]string{"*"}, "10.0.0.0/8", true}, {[]string{"10.0.0.0/8"}, "10.0.0.0/8", true},
		{[]string{"10.*"}, "10.0.0.7", true}, {[]string{"10.*"}, "10.0.0.0/7", false},
	} {
		tailnet := &Tailnet{Policy: &TailnetPolicy{AllowFromAllowlist: test.list}}
		if got := tailnet.Allows(test.principal); got != test.want {
			t.Errorf("%v allows %s: %v", test.list, test.principal, got)
		}
	}
	if !(&Tailnet{}).Allows("*") {
		t.Error("a tailnet without a policy block allows nobody")
	}
}

// N8 and allow_from: what is valid and likely to surprise is said once, and nothing else is.
func TestWarnings(t *testing.T) {
	summaries := func(o Object) []string {
		var out []string
		for _, w := range o.Warnings() {
			if w.Detail == "" {
				t.Errorf("%s: no detail", w.Summary)
			}
			out = append(out, w.Path.String()+": "+w.Summary)
		}
		return out
	}
	at := func(url string) *Tailnet { return &Tailnet{Headscale: &Headscale{URL: url}} }
	named := func(template string) *Tailnet { return &Tailnet{DNS: &TailnetDNS{IngressNameTemplate: &template}} }
	for _, test := range []struct {
		object Object
		want   []string
	}{
		{named("{name}-{namespace}.x"), []string{"dns.ingress_name_template: Two namespaces can render the same name"}},
		{at("http://hs.example:8080"), []string{"headscale.url: The API key is sent unencrypted"}},
		{at("http://10.0.0.7"), []string{"headscale.url: The API key is sent unencrypted"}},
		{at("https://hs.example"), nil}, {at("http://localhost:1"), nil}, {at("http://127.0.0.1"), nil}, {at("http://[::1]:1"), nil},
		{at("http://" + Unknown), nil},
		{named("{name}.{namespace}.x"), nil}, {named(Unknown + "{name}-{namespace}.x"), nil}, {&Tailnet{}, nil}, {&Issuer{}, nil},
		{&Ingress{}, []string{"allow_from: Nobody is given access"}}, {&Ingress{AllowFrom: []string{}}, nil}, {&Ingress{Tags: []string{"tag:a"}}, nil},
	} {
		if got := summaries(test.object); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.object, got, test.want)
		}
	}
}

// A path that is extended twice leads to two places.
func TestPaths(t *testing.T) {
	base := At("exposes").Key(`we"b`).Attribute("backend").Attribute("targets")
	a, b := base.Index(0), base.Index(1)
	if a.String() != `exposes["we\"b"].backend.targets[0]` || b.String() != `exposes["we\"b"].backend.targets[1]` {
		t.Errorf("%s and %s", a, b)
	}
	if (Path{}).String() != "" {
		t.Error("the empty path has a text")
	}
}
