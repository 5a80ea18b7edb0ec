package blueprint_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint/blueprinttest"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// tailnets are what random ingresses are on, for the most part.
var tailnets = []string{"one", "two"}

// each runs a property on many seeds; a failure names the seed.
func each(t *testing.T, n uint64, property func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range n {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { property(t, rand.New(rand.NewPCG(seed, 1))) }) {
			return
		}
	}
}

// everything is all that a compilation answers.
type everything struct {
	Ingresses map[desired.Key]*blueprint.Ingress
	On        map[string][]desired.Key
	Policy    map[string][]blueprint.PolicyEntry
	Users     map[desired.Key][]desired.Key
	Claims    map[string]blueprint.Claims
}

func all(c *blueprint.Compilation) everything {
	e := everything{
		map[desired.Key]*blueprint.Ingress{}, map[string][]desired.Key{}, map[string][]blueprint.PolicyEntry{}, map[desired.Key][]desired.Key{}, c.Claims(),
	}
	for _, info := range desired.Kinds() {
		for _, o := range c.Objects(info.Kind) {
			key := o.Spec.Key()
			e.Users[key] = c.Users(key)
			if info.Kind == desired.KindIngress {
				e.Ingresses[key] = c.Ingress(key)
			}
		}
	}
	for _, tailnet := range tailnets {
		e.On[tailnet], e.Policy[tailnet] = c.Ingresses(tailnet), c.Policy(tailnet)
	}
	return e
}

// diff is empty where both are equal. Telling them apart costs much more than finding that they are equal.
func diff(want, got everything) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

func snapshotOf(c *blueprint.Compilation) blueprint.Snapshot {
	s := blueprint.Snapshot{Claims: c.Claims(), Facts: map[string]blueprint.Facts{}}
	for _, info := range desired.Kinds() {
		s.Objects = append(s.Objects, c.Objects(info.Kind)...)
	}
	for _, tailnet := range tailnets {
		s.Facts[tailnet] = c.Facts(tailnet)
	}
	return s
}

// A blueprint that was kept as objects came and went is that of what is there now.
func TestChangesComeToTheSameAsCompilingAnew(t *testing.T) {
	each(t, 40, func(t *testing.T, r *rand.Rand) {
		c := blueprint.Compile(blueprinttest.Snapshot(r, 12))
		for step := range 20 {
			what := change(r, c)
			if found := diff(all(blueprint.Compile(snapshotOf(c))), all(c)); found != "" {
				t.Fatalf("after step %d, %s (- anew, + kept):\n%s", step, what, found)
			}
		}
	})
}

// change makes a random change and says which.
func change(r *rand.Rand, c *blueprint.Compilation) string {
	switch r.IntN(6) {
	case 0:
		tailnet := tailnets[r.IntN(2)]
		c.SetFacts(tailnet, blueprinttest.Facts(r))
		return "facts of " + tailnet
	case 1, 2:
		var keys []desired.Key
		for _, info := range desired.Kinds() {
			for _, o := range c.Objects(info.Kind) {
				keys = append(keys, o.Spec.Key())
			}
		}
		if len(keys) == 0 {
			return "nothing"
		}
		key := keys[r.IntN(len(keys))]
		c.Delete(key)
		return "deletion of " + key.String()
	default:
		o := blueprinttest.Object(r)
		o.Created = r.Int64N(40)
		c.Put(o)
		return fmt.Sprintf("%s (deleting %v, released %v)", o.Spec.Key(), o.Deleting, o.Released)
	}
}

// The order in which objects are given says nothing, and asking changes nothing.
func TestTheSameSnapshotComesToTheSame(t *testing.T) {
	each(t, 60, func(t *testing.T, r *rand.Rand) {
		s := blueprinttest.Snapshot(r, 20)
		c := blueprint.Compile(s)
		first := all(c)
		if found := diff(first, all(c)); found != "" {
			t.Fatalf("asked twice:\n%s", found)
		}
		r.Shuffle(len(s.Objects), func(i, j int) { s.Objects[i], s.Objects[j] = s.Objects[j], s.Objects[i] })
		if found := diff(first, all(blueprint.Compile(s))); found != "" {
			t.Fatalf("in another order:\n%s", found)
		}
	})
}

// N6: on one tailnet a host leads to one ingress, and an identity is one's own. X4: what is routed has a certificate.
func TestNothingIsServedTwice(t *testing.T) {
	each(t, 150, func(t *testing.T, r *rand.Rand) {
		c := blueprint.Compile(blueprinttest.Snapshot(r, 20))
		for range 10 {
			change(r, c)
		}
		for _, tailnet := range tailnets {
			held := map[string]desired.Key{}
			hold := func(what string, key desired.Key) {
				if other, taken := held[what]; taken {
					t.Fatalf("%s and %s both have %s", other, key, what)
				}
				held[what] = key
			}
			for _, key := range c.Ingresses(tailnet) {
				in := c.Ingress(key)
				for host := range in.Routes {
					hold("host "+host, key)
				}
				if o, _ := c.Object(key); !in.Withdrawn && !o.Released {
					hold("hostname "+in.Hostname, key)
					hold("tag "+in.Tag, key)
				}
				checkServed(t, in, issuerMissing(c, tailnet))
			}
		}
	})
}

// issuerMissing reports whether the tailnet's default issuer is not there: that is the tailnet's verdict and not its ingresses'.
func issuerMissing(c *blueprint.Compilation, tailnet string) bool {
	o, ok := c.Object(desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: tailnet})
	return ok && len(c.Missing(o.Spec)) > 0
}

// checkServed checks what holds of each ingress alone.
func checkServed(t *testing.T, in *blueprint.Ingress, unissued bool) {
	t.Helper()
	covered, issuer := map[string]bool{}, !unissued
	for _, certificate := range in.Certificates {
		for _, name := range certificate.Names {
			if covered[name] {
				t.Errorf("%s asks twice for %s", in.Key, name)
			}
			covered[name] = true
			if _, err := desired.DNSName(name); err != nil {
				t.Errorf("%s asks a certificate for %q: %v", in.Key, name, err)
			}
		}
	}
	for _, p := range in.Problems {
		issuer = issuer && p.Reason != desired.ReasonReferenceMissing
	}
	for host, expose := range in.Routes {
		if issuer && !covered[host] {
			t.Errorf("%s routes %s without a certificate", in.Key, host)
		}
		endpoint := in.Endpoints[expose]
		if !slices.Contains(in.Hosts, host) || host != endpoint.DNSName && !slices.Contains(endpoint.DNSAliases, host) {
			t.Errorf("%s routes %s to %s, which does not have it: %+v", in.Key, host, expose, in)
		}
	}
	if names := slices.Clone(in.Hosts); !slices.Equal(names, slices.Compact(slices.Sorted(slices.Values(names)))) && names[0] != in.DNSName {
		t.Errorf("%s: hosts are not in order: %v", in.Key, names)
	}
	if in.Withdrawn && len(in.Problems) == 0 {
		t.Errorf("%s is withdrawn and nobody says why", in.Key)
	}
	if !reflect.DeepEqual(in.Hosts, slices.Compact(slices.Clone(in.Hosts))) {
		t.Errorf("%s: a host is listed twice: %v", in.Key, in.Hosts)
	}
}

// many is a tailnet with n ingresses.
func many(n int) blueprint.Snapshot {
	specs := []desired.Object{apps(), corp()}
	for i := range n {
		specs = append(specs, numbered(i))
	}
	s := declared(specs...)
	s.Facts = map[string]blueprint.Facts{"corp": {Principals: &blueprint.Principals{Groups: []string{"group:shop"}}}}
	return s
}

func numbered(i int) *desired.Ingress {
	return shop(func(in *desired.Ingress) {
		in.Name = fmt.Sprintf("shop-%d", i)
		in.Exposes["admin"] = web(func(e *desired.Expose) { e.DNSLabel = ptr(fmt.Sprintf("admin-%d", i)) })
	})
}

// One more ingress among 1,000 costs what it is itself, not what there is.
func BenchmarkOneMoreOfThousand(b *testing.B) {
	c := blueprint.Compile(many(1000))
	o := blueprint.Object{Spec: numbered(1000), Created: 5000}
	for b.Loop() {
		c.Put(o)
		if in := c.Ingress(o.Spec.Key()); len(in.Problems) > 0 {
			b.Fatal(verdict(in))
		}
		c.Delete(o.Spec.Key())
	}
}

// What the plan of a configuration with 1,000 ingresses costs.
func BenchmarkThousandInSequence(b *testing.B) {
	objects := many(1000).Objects
	for b.Loop() {
		c := blueprint.Compile(blueprint.Snapshot{})
		for _, o := range objects {
			c.Put(o)
			if in := c.Ingress(o.Spec.Key()); in != nil && len(in.Problems) > 0 {
				b.Fatal(verdict(in))
			}
		}
	}
}

func BenchmarkCompileThousand(b *testing.B) {
	s := many(1000)
	for b.Loop() {
		blueprint.Compile(s)
	}
}
