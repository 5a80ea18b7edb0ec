package blueprinttest

import (
	"math/rand/v2"
	"slices"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Facts makes what was observed of a tailnet, from nothing to all.
func Facts(r *rand.Rand) blueprint.Facts {
	f := blueprint.Facts{BaseDomain: pick(r, "", "tail.test", "tail.test", "zone.test", "b.zone.test")}
	if r.IntN(2) == 0 {
		f.Principals = &blueprint.Principals{
			Groups: []string{"group:a", "group:b"}[:r.IntN(3)], Tags: []string{"tag:ci", "tag:apps"}[:r.IntN(3)], Hosts: []string{},
		}
	}
	return f
}

// Object draws an object of any kind without an age. Drawn again, some keys come again.
func Object(r *rand.Rand) blueprint.Object {
	var o blueprint.Object
	switch r.IntN(8) {
	case 0:
		o.Spec = Issuer(pick(r,
			desired.Key{Namespace: desired.NoNamespace, Name: "apps"}, desired.Key{Namespace: "b", Name: "apps"},
			desired.Key{Namespace: desired.NoNamespace, Name: "own"},
		))
	case 1:
		o.Spec = Tailnet(r, pick(r, tailnets...))
		o.Deleting = r.IntN(10) == 0
	default:
		o.Spec = Ingress(r, IngressKey(r))
		if r.IntN(6) == 0 {
			o.Deleting, o.Released = true, r.IntN(2) == 0
		}
	}
	return o
}

// Snapshot makes a snapshot of up to n objects, in no order. Its claims are those of an earlier time, or none.
func Snapshot(r *rand.Rand, n int) blueprint.Snapshot {
	byKey := map[desired.Key]bool{}
	s := blueprint.Snapshot{Facts: map[string]blueprint.Facts{}}
	for i := range n {
		o := Object(r)
		if i < len(tailnets) && r.IntN(8) > 0 {
			o = blueprint.Object{Spec: Tailnet(r, tailnets[i])}
		}
		if key := o.Spec.Key(); !byKey[key] {
			byKey[key] = true
			o.Created = int64(i + 1)
			o.Revision = o.Created + int64(r.IntN(n))
			s.Objects = append(s.Objects, o)
		}
	}
	for _, name := range tailnets {
		if r.IntN(2) == 0 {
			s.Facts[name] = Facts(r)
		}
	}
	if r.IntN(2) == 0 {
		s.Claims = blueprint.Compile(blueprint.Snapshot{Objects: s.Objects[:r.IntN(len(s.Objects)+1)]}).Claims()
	}
	r.Shuffle(len(s.Objects), func(i, j int) { s.Objects[i], s.Objects[j] = s.Objects[j], s.Objects[i] })
	s.Objects = slices.Clip(s.Objects)
	return s
}
