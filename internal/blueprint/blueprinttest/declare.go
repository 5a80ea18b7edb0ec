// Package blueprinttest makes random declarations for tests: each is valid taken alone, the same for the same seed, and of
// few names, so that what is declared together collides often.
package blueprinttest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Tailnets are the names of tailnets that ingresses name. A snapshot need not have them all.
var tailnets = []string{"one", "two"}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func maybe[T any](r *rand.Rand, v T) *T {
	if r.IntN(2) == 0 {
		return nil
	}
	return &v
}

// valid draws until a declaration is valid.
func valid[T desired.Object](draw func() T) T {
	for {
		if o := draw(); o.Validate() == nil {
			return o
		}
	}
}

// Tailnet makes a tailnet of this name.
func Tailnet(r *rand.Rand, name string) *desired.Tailnet {
	return valid(func() *desired.Tailnet {
		t := &desired.Tailnet{
			Name: name, DefaultIssuer: maybe(r, pick(r, "apps", "apps", "gone")),
			Headscale: &desired.Headscale{URL: "https://headscale.test", APIKeyFile: new("/key")},
		}
		if r.IntN(8) > 0 {
			t.DNS = &desired.TailnetDNS{
				IngressNameTemplate: maybe(r, pick(r, "{name}.Zone.test", "{name}-{namespace}.zone.test", "{name}.{namespace}.zone.test")),
				HostnameTemplate:    maybe(r, pick(r, "{name}", "h-{name}-{namespace}", "Ingress-{name}")),
			}
			if t.DNS.IngressNameTemplate != nil {
				t.DNS.IngressAliasTemplate = maybe(r, pick(r, "{name}.zone.test", "{namespace}-{name}.zone.test", "{name}.a.zone.test"))
			}
		}
		if r.IntN(2) == 0 {
			t.Policy = &desired.TailnetPolicy{
				TagTemplate: maybe(r, pick(r, "tag:{name}", "tag:x-{name}-{namespace}")), AgentTag: maybe(r, "tag:agent"),
				AllowFromAllowlist: pick(r, nil, nil, []string{}, []string{"group:*"}, []string{"*"}),
			}
		}
		return t
	})
}

// Issuer makes an issuer of the key's name and namespace.
func Issuer(key desired.Key) *desired.Issuer {
	i := &desired.Issuer{Name: key.Name, CA: &desired.CAIssuer{Create: new(true)}}
	if key.Namespace != desired.NoNamespace {
		i.Namespace = &key.Namespace
	}
	return i
}

// IngressKey draws a key. Names joined by a hyphen collide, and some are too long for a template, or no tag.
func IngressKey(r *rand.Rand) desired.Key {
	return desired.Key{
		Kind:      desired.KindIngress,
		Namespace: pick(r, desired.DefaultNamespace, "a", "b", "b-c"),
		Name:      pick(r, "a", "b", "a-b", "c", "a-b-c", "1", strings.Repeat("long", 15)),
	}
}

// Ingress makes an ingress of this key.
func Ingress(r *rand.Rand, key desired.Key) *desired.Ingress {
	return valid(func() *desired.Ingress {
		in := &desired.Ingress{
			Name: key.Name, Tailnet: pick(r, tailnets[0], tailnets[0], tailnets[0], tailnets[1], "gone"),
			AllowFrom: pick(r, nil, []string{}, []string{"group:a"}, []string{"group:b", "tag:ci", "tag:x-a-a"}),
			Tags:      pick(r, nil, nil, []string{"tag:ci"}, []string{"tag:apps", "tag:ingress-b"}),
			Exposes:   map[string]desired.Expose{},
		}
		if key.Namespace != desired.DefaultNamespace || r.IntN(2) == 0 {
			in.Namespace = &key.Namespace
		}
		if r.IntN(4) == 0 {
			in.Hostname = new(pick(r, "front", "Bücher", "ingress-a"))
		}
		for i := range 1 + r.IntN(4) {
			in.Exposes[fmt.Sprintf("e%d", i)] = expose(r)
		}
		if in.HasHTTP() {
			in.RedirectHTTP = maybe(r, r.IntN(2) == 0)
			if r.IntN(2) == 0 {
				in.TLS = &desired.IngressTLS{
					Issuer: maybe(r, pick(r, "apps", "own", "gone")), Layout: maybe(r, pick(r, desired.LayoutSingle, desired.LayoutPerHost)),
				}
			}
		}
		return in
	})
}

func expose(r *rand.Rand) desired.Expose {
	e := desired.Expose{Backend: desired.Backend{Targets: []string{"127.0.0.1:80", "b.test:81"}[:1+r.IntN(2)]}}
	switch pick(r, desired.ModeHTTP, desired.ModeHTTP, desired.ModeTCP, desired.ModeUDP) {
	case desired.ModeHTTP:
		e.Mode, e.Port = new(desired.ModeHTTP), maybe(r, int64(desired.PortHTTPS))
		e.Alias = maybe(r, r.IntN(2) == 0)
		e.DNSLabel = maybe(r, pick(r, "a", "b", "x", "Ähre", "a-b"))
	case desired.ModeUDP:
		e.Mode, e.Port = new(desired.ModeUDP), new(pick(r, int64(53), 443, 5000))
	default:
		e.Mode, e.Port = maybe(r, desired.ModeTCP), new(pick(r, int64(22), 443, 80, 5432))
		e.ProxyProtocol = maybe(r, "v2")
	}
	return e
}
