package blueprint_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint/blueprinttest"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// taint is v with some of its text not known, absent text included, as a plan sees it. Map keys are always known.
func taint(r *rand.Rand, v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		if r.IntN(5) == 0 {
			out.SetString(desired.Unknown)
		}
	case reflect.Pointer:
		switch {
		case v.Type().Elem().Kind() == reflect.String && v.IsNil() && r.IntN(5) == 0 && v.Type() != reflect.TypeFor[*desired.Secret]():
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().SetString(desired.Unknown)
		case !v.IsNil():
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(taint(r, v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(taint(r, v.Field(i)))
		}
	case reflect.Slice:
		if v.IsNil() {
			break
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(taint(r, v.Index(i)))
		}
	case reflect.Map:
		if v.IsNil() {
			break
		}
		out.Set(reflect.MakeMap(v.Type()))
		for _, key := range sortedKeys(v) {
			out.SetMapIndex(key, taint(r, v.MapIndex(key)))
		}
	default:
	}
	return out
}

// sortedKeys keeps a seed's course.
func sortedKeys(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func tainted[T any](r *rand.Rand, v *T) *T {
	out, _ := taint(r, reflect.ValueOf(v)).Interface().(*T)
	return out
}

// What a plan shows as known is what it comes to: the rule that Preview states.
func TestKnownOutputsStand(t *testing.T) {
	stood := map[string]int{}
	each(t, 1500, func(t *testing.T, r *rand.Rand) {
		s := blueprinttest.Snapshot(r, 8)
		in := blueprinttest.Ingress(r, blueprinttest.IngressKey(r))
		in.Tailnet = tailnets[0]
		tailnet := blueprinttest.Tailnet(r, in.Tailnet)

		final := blueprint.Compile(s)
		final.Put(blueprint.Object{Spec: tailnet, Created: 99})
		planned := blueprint.Compile(s)
		unknownTailnet := tailnet
		if r.IntN(2) == 0 {
			unknownTailnet = tainted(r, tailnet)
			unknownTailnet.Name = tailnet.Name
		}
		planned.Put(blueprint.Object{Spec: unknownTailnet, Created: 99})
		unknown := tainted(r, in)
		before, after := planned.Preview(unknown), final.Preview(in)
		if !desired.Known(unknown.Tailnet) {
			if !before.Withdrawn {
				t.Fatal("an ingress of no known tailnet runs")
			}
			return
		}
		checkProblems(t, before, after, stood)
		if len(after.Refused()) == 0 {
			check := standing{t, stood, before, after}
			check.all(unknown)
		}
	})
	for _, what := range []string{"dns_name", "hostname", "tag", "tags", "hosts", "endpoint dns_name", "endpoint url", "dns_aliases", "grant src", "grant ip", "problem"} {
		if stood[what] < 25 && !t.Failed() {
			t.Errorf("%s was seen %d times only: %v", what, stood[what], stood)
		}
	}
}

// standing compares what was known in a plan with what it came to.
type standing struct {
	t             *testing.T
	seen          map[string]int
	before, after *blueprint.Ingress
}

func (s standing) text(what, before, after string) {
	if !desired.Known(before) {
		return
	}
	s.seen[what]++
	if before != after {
		s.t.Fatalf("%s was %q and is %q\nplanned %+v\nfinal %+v", what, before, after, s.before, s.after)
	}
}

func (s standing) list(what string, before, after []string, also bool) {
	if !also || !desired.Known(strings.Join(before, "")) {
		return
	}
	s.seen[what]++
	if !slices.Equal(before, after) {
		s.t.Fatalf("%s was %q and is %q\nplanned %+v\nfinal %+v", what, before, after, s.before, s.after)
	}
}

func (s standing) all(unknown *desired.Ingress) {
	b, a := s.before, s.after
	modes := true
	for name, e := range unknown.Exposes {
		if !desired.Known(string(e.EffectiveMode())) {
			modes = false
			continue
		}
		before, after := b.Endpoints[name], a.Endpoints[name]
		s.text("endpoint dns_name", before.DNSName, after.DNSName)
		s.text("endpoint url", before.URL, after.URL)
		s.text("endpoint mode", string(before.Mode), string(after.Mode))
		s.list("dns_aliases", before.DNSAliases, after.DNSAliases, desired.Known(before.DNSName) || !desired.Value(e.Alias, false))
		if before.Port != after.Port {
			s.t.Fatalf("port of %s was %d and is %d", name, before.Port, after.Port)
		}
	}
	s.text("dns_name", b.DNSName, a.DNSName)
	s.text("hostname", b.Hostname, a.Hostname)
	s.text("tag", b.Tag, a.Tag)
	s.text("namespace", b.Namespace, a.Namespace)
	s.list("tags", b.Tags, a.Tags, true)
	s.list("hosts", b.Hosts, a.Hosts, modes)
	if (b.Grant == nil) != (a.Grant == nil) {
		s.t.Fatalf("the grant was %+v and is %+v\nplanned %+v", b.Grant, a.Grant, b)
	}
	if b.Grant != nil {
		s.list("grant src", b.Grant.Src, a.Grant.Src, true)
		s.list("grant dst", b.Grant.Dst, a.Grant.Dst, true)
		s.list("grant ip", b.Grant.IP, a.Grant.IP, modes)
	}
}

// checkProblems checks that a verdict which is sure in a plan is one in the end.
func checkProblems(t *testing.T, before, after *blueprint.Ingress, seen map[string]int) {
	t.Helper()
	if !desired.Known(before.Key.Path()) {
		return
	}
	for _, p := range before.Problems {
		if !desired.Known(p.Value + p.Rule + p.Remedy) {
			continue
		}
		seen["problem"]++
		stays := len(after.Refused()) > 0 || !p.Refuse && slices.ContainsFunc(after.Problems, func(o blueprint.Problem) bool {
			return o.Reason == p.Reason && o.Value == p.Value
		})
		if !stays {
			t.Fatalf("a sure problem came to nothing: %s %s\nfinal:\n%s", p.Reason, p.FieldError.Error(), verdict(after))
		}
	}
}
