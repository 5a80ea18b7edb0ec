package blueprint_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Two ingresses whose names one hyphen joins to the same: the older is a in b-c.
var (
	older   = simple("b-c", "a")
	younger = simple("c", "a-b")
	joined  = "a-b-c." + base
)

func conflictWith(owner string, name string) string {
	return `reports DNSNameConflict name: "` + name + `": ` + owner + ` claimed this name first and keeps it; ` +
		`give this ingress another name or dns_label, or remove the name from ` + owner
}

func put(c *blueprint.Compilation, created int64, spec desired.Object) {
	c.Put(blueprint.Object{Spec: spec, Created: created, Revision: created})
}

// holds checks that winner serves the joined name and loser does not, and says so.
func holds(t *testing.T, c *blueprint.Compilation, winner, loser *desired.Ingress) {
	t.Helper()
	w, l := c.Ingress(winner.Key()), c.Ingress(loser.Key())
	same(t, "winner's verdict", verdict(w), "")
	same(t, "winner's routes", w.Routes, map[string]string{joined: "web"})
	same(t, "winner's certificates", len(w.Certificates), 1)
	same(t, "loser's verdict", verdict(l), conflictWith(winner.Key().String(), joined))
	same(t, "loser's hosts", l.Hosts, []string{joined})
	same(t, "loser's routes", l.Routes, map[string]string{})
	same(t, "loser's certificates", len(l.Certificates), 0)
	same(t, "owner", *l.Problems[0].Owner, winner.Key())
	same(t, "name", l.Problems[0].Name, joined)
	same(t, "withdrawn", l.Withdrawn, false)
}

// N6: the older claim wins, whatever the order in which objects are given.
func TestOlderClaimHoldsTheName(t *testing.T) {
	s := declared(younger, older, apps(), corp())
	s.Objects[0].Created, s.Objects[1].Created = 9, 8
	holds(t, blueprint.Compile(s), older, younger)
	s.Objects[0].Created, s.Objects[1].Created = 8, 9
	holds(t, blueprint.Compile(s), younger, older)
}

// N6: the younger takes over on its own, however the older lets go of the name.
func TestYoungerTakesOver(t *testing.T) {
	for name, letGo := range map[string]func(*blueprint.Compilation){
		"deleted":  func(c *blueprint.Compilation) { c.Delete(older.Key()) },
		"deleting": func(c *blueprint.Compilation) { c.Put(blueprint.Object{Spec: older, Created: 3, Deleting: true}) },
		"moved": func(c *blueprint.Compilation) {
			put(c, 3, simple("b-c", "a", func(in *desired.Ingress) { in.Tailnet = "other" }))
		},
		"templates apart": func(c *blueprint.Compilation) {
			put(c, 2, corp(func(t *desired.Tailnet) { t.DNS.IngressNameTemplate = ptr("{name}.{namespace}." + base) }))
		},
	} {
		c := blueprint.Compile(declared(apps(), corp(), older, younger))
		holds(t, c, older, younger)
		letGo(c)
		in := c.Ingress(younger.Key())
		same(t, name+": verdict", verdict(in), "")
		same(t, name+": routes", len(in.Routes), 1)
		same(t, name+": certificates", len(in.Certificates), 1)
		if old := c.Ingress(older.Key()); old != nil && old.Routes[joined] != "" {
			t.Errorf("%s: the older still routes the name", name)
		}
	}
}

// A deleting ingress serves nothing and asks for no certificate: its names may be another's already.
func TestDeletingServesNothing(t *testing.T) {
	s := declared(apps(), corp(), older, younger)
	s.Objects[2].Deleting = true
	c := blueprint.Compile(s)
	in := c.Ingress(older.Key())
	same(t, "routes", in.Routes, map[string]string{})
	same(t, "certificates", len(in.Certificates), 0)
	same(t, "routes of the other", c.Ingress(younger.Key()).Routes, map[string]string{joined: "web"})
}

// The age of a claim is not the age of its object: an old object that takes up a held name later waits, over restarts too.
func TestClaimsKeepTheirAgeOverARestart(t *testing.T) {
	elsewhere := simple("b-c", "a", func(in *desired.Ingress) {
		in.Exposes["web"] = web(func(e *desired.Expose) { e.DNSLabel = ptr("x") })
		in.Tailnet = "other"
	})
	c := blueprint.Compile(declared(apps(), corp(), elsewhere, younger))
	put(c, 3, older) // the older object, the younger claim
	holds(t, c, younger, older)

	text, err := json.Marshal(c.Claims())
	if err != nil {
		t.Fatal(err)
	}
	s := declared(apps(), corp(), older, younger)
	if err := json.Unmarshal(text, &s.Claims); err != nil {
		t.Fatal(err)
	}
	again := blueprint.Compile(s)
	holds(t, again, younger, older)
	same(t, "claims", again.Claims(), c.Claims())
	holds(t, blueprint.Compile(declared(apps(), corp(), older, younger)), older, younger) // without claims, the object's age counts
}

// A claim without its object is forgotten on load.
func TestStaleClaimsAreForgotten(t *testing.T) {
	c := blueprint.Compile(declared(apps(), corp(), older, younger))
	s := declared(apps(), corp(), younger)
	s.Claims = c.Claims()
	again := blueprint.Compile(s)
	same(t, "verdict", verdict(again.Ingress(younger.Key())), "")
	for id, claims := range again.Claims()["corp"].Held {
		for _, claim := range claims {
			if claim.Owner == older.Key() {
				t.Errorf("%s still claims %s", older.Key(), id)
			}
		}
	}
	if len(s.Claims["corp"].Held["dns:"+joined]) != 2 {
		t.Error("Compile changed the snapshot it was given")
	}
}

// N6: an identity that is another's withdraws the ingress whole, and its policy entries with it.
func TestIdentityConflictsWithdraw(t *testing.T) {
	first, second := simple("a", "shop"), simple("b", "shop", func(in *desired.Ingress) { in.AllowFrom = []string{"group:b"} })
	c := blueprint.Compile(declared(apps(), corp(), first, second))
	in := c.Ingress(second.Key())
	const held = `": ingress a/shop claimed this name first and keeps it; `
	same(t, "verdict", verdict(in), strings.Join([]string{
		`reports HostnameConflict hostname: "ingress-shop` + held + `set another hostname, or put {namespace} into the tailnet's hostname_template`,
		`reports TagConflict name: "tag:ingress-shop` + held + `put {namespace} into the tailnet's policy.tag_template, or rename one of the two`,
	}, "\n"))
	same(t, "withdrawn", in.Withdrawn, true)
	same(t, "first withdrawn", c.Ingress(first.Key()).Withdrawn, false)
	for _, entry := range c.Policy("corp") {
		if entry.Owner == second.Key() {
			t.Errorf("a withdrawn ingress has the policy entry %+v", entry)
		}
	}

	// P11: while the first is deleting its device still has the name; once that is gone the second takes over.
	c.Put(blueprint.Object{Spec: first, Created: 3, Deleting: true})
	same(t, "withdrawn while the device is there", c.Ingress(second.Key()).Withdrawn, true)
	c.Put(blueprint.Object{Spec: first, Created: 3, Deleting: true, Released: true})
	same(t, "withdrawn once the device is gone", c.Ingress(second.Key()).Withdrawn, false)
	same(t, "verdict once the device is gone", verdict(c.Ingress(second.Key())), "")

	// A hostname of its own leaves the tag.
	c = blueprint.Compile(declared(apps(), corp(), first, simple("b", "shop", func(in *desired.Ingress) { in.Hostname = ptr("b") })))
	in = c.Ingress(second.Key())
	same(t, "withdrawn by the tag", in.Withdrawn, true)
	same(t, "problems", len(in.Problems), 1)
}

// Three in a row: each change hands the name to the oldest claim that is left.
func TestTheOldestClaimThatIsLeftHolds(t *testing.T) {
	var all []*desired.Ingress
	specs := []desired.Object{apps(), corp(func(t *desired.Tailnet) { t.DNS.IngressNameTemplate = ptr("one-{name}." + base) })}
	for i := range 3 {
		in := simple(fmt.Sprintf("n%d", i), "shop", func(in *desired.Ingress) { in.Hostname = ptr(fmt.Sprintf("h%d", i)) })
		all, specs = append(all, in), append(specs, in)
	}
	c := blueprint.Compile(declared(specs...))
	for i := range all {
		for j := i; j < len(all); j++ {
			routes := c.Ingress(all[j].Key()).Routes
			if (len(routes) == 1) != (j == i) {
				t.Errorf("after %d left, ingress %d routes %v", i, j, routes)
			}
		}
		c.Delete(all[i].Key())
	}
	same(t, "claims at the end", len(c.Claims()["corp"].Held), 0)
}

// Tailnets do not know each other's names.
func TestTailnetsAreApart(t *testing.T) {
	other := corp(func(t *desired.Tailnet) { t.Name = "other" })
	there := simple("c", "a-b", func(in *desired.Ingress) { in.Tailnet = "other" })
	c := blueprint.Compile(declared(apps(), corp(), other, older, there))
	same(t, "verdicts", verdict(c.Ingress(older.Key()))+verdict(c.Ingress(there.Key())), "")
}
