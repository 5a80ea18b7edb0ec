package provider

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// declared is one resource of a random configuration.
type declared struct {
	kind, address string
	config        tftypes.Value
}

// Whatever the unknown becomes, each value that a plan shows as known equals its value after the apply, for new objects, for
// changed ones and for ones whose tailnet changes under them (N10, T1).
func TestWhatAPlanShowsComesTrue(t *testing.T) {
	s := servertest.Start(t)
	rounds := 200
	if testing.Short() {
		rounds = 50
	}
	var shown, planned, refused, applied int
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		c := newCore(t, s.Endpoint, "test")
		g := &generator{r: r, core: c, suffix: fmt.Sprintf("-%d", seed)}
		for step := range 3 {
			world := g.world()
			unknown := map[string]tftypes.Value{}
			plans := map[string]*plan{}
			process, ok := c.open(), true
			for _, d := range world {
				unknown[d.address] = g.forget(d.config)
				p, err := process.plan(d.kind, d.address, unknown[d.address])
				if err != nil {
					refused++
					ok = false
					if accepted(c.open(), world, d.address) {
						t.Fatalf("seed %d step %d, %s: what is known whole is accepted, and known in part it is refused: %v\nplanned with %s\nconfig %s",
							seed, step, d.address, err, dump(unknown[d.address]), dump(d.config))
					}
					break
				}
				plans[d.address], planned = p, planned+1
				shown += known(p.value)
			}
			if !ok {
				break
			}
			process = c.open()
			for _, d := range world {
				err := process.apply(plans[d.address], d.config)
				var broken *brokenPromise
				if errors.As(err, &broken) {
					t.Fatalf("seed %d step %d, %s: %v\nplanned with %s\nplan    %s\nconfig  %s",
						seed, step, d.address, err, dump(unknown[d.address]), dump(plans[d.address].value), dump(d.config))
				}
				if err != nil {
					refused++
					break
				}
				applied++
			}
		}
		c.clear()
	}
	t.Logf("%d plans, %d applies, %d refused, %d computed names shown as known", planned, applied, refused, shown)
	if applied < planned/2 || shown < planned/2 {
		t.Errorf("the test proves little: of %d plans %d were applied, and they showed %d values", planned, applied, shown)
	}
}

// accepted reports whether a configuration that is known whole can be planned up to a resource.
func accepted(p *process, world []declared, address string) bool {
	for _, d := range world {
		if _, err := p.plan(d.kind, d.address, d.config); err != nil {
			return false
		}
		if d.address == address {
			return true
		}
	}
	return true
}

// known counts the top-level names that a plan of an ingress shows.
func known(v tftypes.Value) int {
	var parts map[string]tftypes.Value
	if err := v.As(&parts); err != nil {
		return 0
	}
	n := 0
	for _, name := range []string{"dns_name", "tag", "hosts", "endpoints"} {
		if p, ok := parts[name]; ok && p.IsKnown() && !p.IsNull() {
			n++
		}
	}
	return n
}

// clear destroys what is in the state, users first.
func (c *core) clear() {
	c.tb.Helper()
	p := c.open()
	for _, kind := range []string{"postern_ingress", "postern_tailnet", "postern_issuer"} {
		for address := range c.states {
			if len(address) > len(kind) && address[:len(kind)] == kind {
				if err := p.destroy(kind, address); err != nil {
					c.tb.Fatalf("destroying %s: %v", address, err)
				}
			}
		}
	}
}

// generator makes random configurations. Names end in suffix, so that rounds do not meet.
type generator struct {
	r      *rand.Rand
	core   *core
	suffix string
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func pick[T any](g *generator, from ...T) T { return from[g.r.IntN(len(from))] }

func maybe[T any](g *generator, v T) *T {
	if g.chance(50) {
		return nil
	}
	return &v
}

// world is a whole configuration, in the order in which Terraform plans it. A later step changes an earlier one.
func (g *generator) world() []declared {
	issuer := &desired.Issuer{Name: "apps" + g.suffix, CA: &desired.CAIssuer{Create: ptr(true)}}
	tailnet := &desired.Tailnet{
		Name:          "corp" + g.suffix,
		Headscale:     &desired.Headscale{URL: "https://" + pick(g, "one", "two") + ".test", APIKeyFile: ptr(pick(g, "/key", "/other"))},
		DefaultIssuer: &issuer.Name,
	}
	if g.chance(90) {
		tailnet.DNS = &desired.TailnetDNS{
			IngressNameTemplate:  ptr(pick(g, "{name}.zone.test", "{name}-{namespace}.zone.test", "{name}.{namespace}.Zone.test")),
			IngressAliasTemplate: maybe(g, pick(g, "alias-{name}.zone.test", "{name}.zone.test")),
			HostnameTemplate:     maybe(g, pick(g, "h-{name}-{namespace}", "{name}")),
		}
	}
	if g.chance(50) {
		tailnet.Policy = &desired.TailnetPolicy{
			TagTemplate:        maybe(g, pick(g, "tag:x-{name}", "tag:{name}-{namespace}")),
			AllowFromAllowlist: pick(g, nil, []string{"group:*"}, []string{"group:*", "autogroup:member"}),
		}
	}
	out := []declared{
		{"postern_issuer", "postern_issuer.apps", g.core.config("postern_issuer", issuer, nil)},
		{"postern_tailnet", "postern_tailnet.corp", g.core.config("postern_tailnet", tailnet, nil)},
	}
	for i := range 2 {
		name := fmt.Sprintf("shop%d", i)
		in := g.ingress(name+g.suffix, tailnet)
		out = append(out, declared{"postern_ingress", "postern_ingress." + name, g.core.config("postern_ingress", in, map[string]any{
			"wait_for": pick[any](g, nil, "none", "registered"), "timeouts": map[string]any{"create": "1s", "update": "1s"},
		})})
	}
	return out
}

func (g *generator) ingress(name string, tailnet *desired.Tailnet) *desired.Ingress {
	in := &desired.Ingress{
		Name: name, Tailnet: tailnet.Name, Namespace: maybe(g, pick(g, "dev", "prod", "default")),
		Hostname: maybe(g, "host-"+name), AllowFrom: pick(g, nil, []string{}, []string{"group:a", "group:b"}),
		Exposes: map[string]desired.Expose{},
	}
	for i := range 1 + g.r.IntN(3) {
		e := desired.Expose{Backend: desired.Backend{Targets: []string{"127.0.0.1:80", "b.test:81"}[:1+g.r.IntN(2)]}}
		mode := pick(g, desired.ModeHTTP, desired.ModeHTTP, desired.ModeTCP, desired.ModeUDP)
		if tailnet.DNS == nil {
			mode = desired.ModeTCP
		}
		switch mode {
		case desired.ModeHTTP:
			e.Mode, e.Alias = ptr(desired.ModeHTTP), maybe(g, tailnet.AliasTemplate() != "" && g.chance(50))
			if i > 0 || g.chance(30) {
				e.DNSLabel = ptr(fmt.Sprintf("%s%d-%s", pick(g, "label", "Größe"), i, name))
			}
			e.Port = maybe(g, int64(443))
		case desired.ModeUDP:
			e.Mode, e.Port = ptr(desired.ModeUDP), ptr(int64(5000+i*10+g.r.IntN(2)))
		default:
			e.Mode, e.Port = maybe(g, desired.ModeTCP), ptr(int64(6000+i*10+g.r.IntN(2)))
		}
		in.Exposes[fmt.Sprintf("e%d", i)] = e
	}
	if in.HasHTTP() {
		in.RedirectHTTP = maybe(g, g.chance(30))
	}
	if in.HasHTTP() && g.chance(30) {
		in.TLS = &desired.IngressTLS{Layout: ptr(pick(g, "single", "per-host"))}
	}
	return in
}

// forget makes some values of a configuration unknown: what is there, what is absent, elements, and whole parts.
func (g *generator) forget(config tftypes.Value) tftypes.Value {
	percent, salt := pick(g, 0, 3, 8, 20), g.r.Uint64()
	out, err := tftypes.Transform(config, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		steps := p.Steps()
		if len(steps) == 0 || chosen(p, salt)%100 >= uint64(percent) {
			return v, nil
		}
		for _, name := range computedNames {
			if steps[0] == tftypes.AttributeName(name) {
				return v, nil
			}
		}
		if steps[0] == tftypes.AttributeName("timeouts") || steps[0] == tftypes.AttributeName("wait_for") {
			return v, nil
		}
		return tftypes.NewValue(v.Type(), tftypes.UnknownValue), nil
	})
	if err != nil {
		g.core.tb.Fatal(err)
	}
	return out
}

// chosen is a number for each path and salt: a transformation visits paths in no order, and a seed is to be repeatable.
func chosen(p *tftypes.AttributePath, salt uint64) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, p.String(), salt) // a hash takes all
	return h.Sum64()
}
