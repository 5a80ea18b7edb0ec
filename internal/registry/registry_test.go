package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// reversing seals so that a test sees whether something was sealed at all, and under which name.
type reversing struct{}

func (reversing) Seal(name string, text []byte) []byte {
	return append([]byte("sealed:"+name+":"), reversed(text)...)
}

func (reversing) Unseal(name string, sealed []byte) ([]byte, error) {
	text, ok := bytes.CutPrefix(sealed, []byte("sealed:"+name+":"))
	if !ok {
		return nil, errors.New("sealed under another name")
	}
	return reversed(text), nil
}

func reversed(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[len(b)-1-i] = c
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func declaration(t *testing.T, o desired.Object) api.Declaration {
	t.Helper()
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return api.Declaration{Spec: spec}
}

func put(t *testing.T, r *registry.Registry, o desired.Object) *api.Document {
	t.Helper()
	d, err := r.Put(t.Context(), o.Key(), declaration(t, o), registry.Guard{}, "w")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func apps() *desired.Issuer {
	return &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}}
}

func corp(template string) *desired.Tailnet {
	return &desired.Tailnet{
		Name: "corp", Headscale: &desired.Headscale{URL: "http://127.0.0.1:1", APIKeyVersion: ptr(int64(1))},
		DNS: &desired.TailnetDNS{IngressNameTemplate: ptr(template)}, DefaultIssuer: ptr("apps"),
	}
}

func web(name, label string) *desired.Ingress {
	e := desired.Expose{Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{"127.0.0.1:80"}}}
	if label != "" {
		e.DNSLabel = ptr(label)
	}
	return &desired.Ingress{Name: name, Tailnet: "corp", Exposes: map[string]desired.Expose{"web": e}}
}

func fresh(t *testing.T) (*registry.Registry, store.Store) {
	t.Helper()
	s := store.Memory()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := registry.New(s, reversing{}, nil)
	put(t, r, apps())
	put(t, r, corp("{name}.example.internal"))
	return r, s
}

func problems(t *testing.T, r *registry.Registry, key desired.Key) []desired.Reason {
	t.Helper()
	view, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, ok := view.Document(key)
	if !ok {
		t.Fatalf("%s is gone", key)
	}
	var reasons []desired.Reason
	for _, p := range d.Ingress.Problems {
		reasons = append(reasons, p.Reason)
	}
	return reasons
}

func TestOlderClaimKeepsItsNameAcrossRestart(t *testing.T) {
	r, s := fresh(t)
	// The younger object takes the name first; the older object takes it up later, so its claim is the younger one (N6).
	older, younger := web("older", ""), web("younger", "shared")
	put(t, r, older)
	put(t, r, younger)
	older.Exposes["web"] = desired.Expose{Mode: ptr(desired.ModeHTTP), DNSLabel: ptr("shared"), Backend: desired.Backend{Targets: []string{"127.0.0.1:80"}}}
	put(t, r, older)
	for _, r := range []*registry.Registry{r, registry.New(s, reversing{}, nil)} {
		if got := problems(t, r, younger.Key()); len(got) != 0 {
			t.Fatalf("the holder has problems: %v", got)
		}
		if got := problems(t, r, older.Key()); len(got) != 1 || got[0] != desired.ReasonDNSNameConflict {
			t.Fatalf("the later claim: %v", got)
		}
	}
	if err := r.Delete(t.Context(), younger.Key(), registry.Guard{}); err != nil {
		t.Fatal(err)
	}
	if got := problems(t, r, older.Key()); len(got) != 0 {
		t.Fatalf("the name is free and yet: %v", got)
	}
}

func TestRefusedDeclarationChangesNothing(t *testing.T) {
	r, s := fresh(t)
	put(t, r, web("shop", ""))
	_, before, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	bad := web("shop", "")
	bad.Tailnet = "crop"
	_, err = r.Put(t.Context(), bad.Key(), declaration(t, bad), registry.Guard{}, "w")
	var refusal *api.Error
	if !errors.As(err, &refusal) || !errors.Is(err, api.ErrUnacceptable) {
		t.Fatal(err)
	}
	want := `tailnet: "crop": there is no tailnet of this name; there is corp; did you mean "corp"? If not, declare it, ` +
		`and refer to postern_tailnet.<name>.name so that it comes first`
	if len(refusal.Fields) != 1 || refusal.Fields[0].Error() != want {
		t.Fatalf("got %v, want %s", refusal.Fields, want)
	}
	if _, after, err := s.List(t.Context(), ""); err != nil || after != before {
		t.Fatalf("revision %d became %d: %v", before, after, err)
	}
}

func TestGuards(t *testing.T) {
	r, _ := fresh(t)
	shop := web("shop", "")
	first := put(t, r, shop)
	if again := put(t, r, shop); again.Revision != first.Revision {
		t.Fatalf("an equal declaration made revision %d of %d", again.Revision, first.Revision)
	}
	shop.AllowFrom = []string{"*"}
	for name, c := range map[string]struct {
		guard registry.Guard
		want  error
	}{
		"absent": {registry.Guard{Absent: true}, api.ErrExists},
		"stale":  {registry.Guard{Revision: first.Revision - 1}, api.ErrConflict},
	} {
		if _, err := r.Put(t.Context(), shop.Key(), declaration(t, shop), c.guard, "w"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Put(t.Context(), web("new", "").Key(), declaration(t, web("new", "")), registry.Guard{Revision: 7}, "w"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("updating what is not there: %v", err)
	}
	if _, err := r.Put(t.Context(), shop.Key(), declaration(t, shop), registry.Guard{Revision: first.Revision}, "w"); err != nil {
		t.Error(err)
	}
}

func TestPlanThatMovedIsRefused(t *testing.T) {
	r, _ := fresh(t)
	d := declaration(t, web("shop", ""))
	d.Expect = &api.Expectation{DNSName: ptr("shop.old.internal"), Hosts: &[]string{"shop.old.internal"}, Tag: ptr("tag:ingress-shop")}
	_, err := r.Put(t.Context(), web("shop", "").Key(), d, registry.Guard{Absent: true}, "w")
	if !errors.Is(err, api.ErrMoved) || !strings.Contains(err.Error(), `dns_name was planned as "shop.old.internal" and would be "shop.example.internal"`) {
		t.Fatal(err)
	}
}

func TestSecretsAreSealedAndGoWithTheirObject(t *testing.T) {
	r, s := fresh(t)
	d := declaration(t, corp("{name}.example.internal"))
	d.Secrets = map[string]string{desired.SecretAPIKey: "hskey-api-abc"}
	key := corp("").Key()
	if _, err := r.Put(t.Context(), key, d, registry.Guard{}, "w"); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Secret(t.Context(), key, desired.SecretAPIKey); err != nil || got != "hskey-api-abc" {
		t.Fatalf("%q %v", got, err)
	}
	entries, _, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if bytes.Contains(e.Value, []byte("hskey-api-abc")) {
			t.Errorf("%s holds the secret in the clear", e.Key)
		}
	}
	if err := r.Delete(t.Context(), key, registry.Guard{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if entries, _, err := s.List(t.Context(), "secrets/"); err != nil || len(entries) != 0 {
		t.Fatalf("%d secrets are left: %v", len(entries), err)
	}
}

func TestDeletingInOrder(t *testing.T) {
	r, _ := fresh(t)
	shop := web("shop", "")
	put(t, r, shop)
	for _, key := range []desired.Key{corp("").Key(), apps().Key()} {
		if err := r.Delete(t.Context(), key, registry.Guard{}); !errors.Is(err, api.ErrInUse) {
			t.Fatalf("%s: %v", key, err)
		}
	}
	if err := r.Delete(t.Context(), shop.Key(), registry.Guard{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), shop.Key(), declaration(t, shop), registry.Guard{Absent: true}, "w"); !errors.Is(err, api.ErrDeleting) {
		t.Fatalf("declaring what is being deleted: %v", err)
	}
	view, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(view.Compilation.Policy("corp")); got != 2 {
		t.Fatalf("%d policy entries while the node still runs, want the agent's tag and the ingress's", got)
	}
	if err := r.Release(t.Context(), shop.Key()); err != nil {
		t.Fatal(err)
	}
	if view, err = r.View(t.Context()); err != nil || len(view.Compilation.Policy("corp")) != 1 {
		t.Fatalf("entries stay after the node is gone: %v %v", view.Compilation.Policy("corp"), err)
	}
	for range 2 { // finishing twice is fine: an agent that died may do so
		if err := r.Finish(t.Context(), shop.Key()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStatusSpeaksOfARevision(t *testing.T) {
	r, _ := fresh(t)
	shop := web("shop", "")
	d := put(t, r, shop)
	status := api.Status{Conditions: desired.Conditions{{Type: desired.Ready, Status: desired.True, Generation: d.Revision}}}
	if err := r.SetStatus(t.Context(), d.Key, d.Revision, status); err != nil {
		t.Fatal(err)
	}
	view, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen, _ := view.Document(d.Key)
	if seen.Revision != d.Revision || seen.Ready().Status != desired.True {
		t.Fatalf("revision %d of %d, %+v", seen.Revision, d.Revision, seen.Ready())
	}
	shop.AllowFrom = []string{"*"}
	changed := put(t, r, shop)
	if changed.Ready().Status != desired.Uncertain {
		t.Fatalf("a condition of the old spec counts for the new: %+v", changed.Ready())
	}
	if err := r.SetStatus(t.Context(), d.Key, d.Revision, status); !errors.Is(err, api.ErrConflict) {
		t.Fatalf("reporting on an old revision: %v", err)
	}
}

// Two registries on one store are two agents, or an agent and one that takes over: no push is lost, and a name has one holder.
func TestTwoWritersOnOneStore(t *testing.T) {
	r, s := fresh(t)
	other := registry.New(s, reversing{}, nil)
	const each = 20
	var writers sync.WaitGroup
	for i, r := range []*registry.Registry{r, other} {
		writers.Go(func() {
			for n := range each {
				in := web(fmt.Sprintf("w%d-%d", i, n), fmt.Sprintf("name-%d", n))
				if _, err := r.Put(t.Context(), in.Key(), declaration(t, in), registry.Guard{Absent: true}, "w"); err != nil {
					t.Errorf("%s: %v", in.Name, err)
				}
			}
		})
	}
	writers.Wait()
	view, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	holders := map[string]string{}
	for _, d := range view.Documents(desired.KindIngress) {
		for host := range d.Ingress.Routes {
			if holders[host] != "" {
				t.Errorf("%s is served by %s and %s", host, holders[host], d.Key)
			}
			holders[host] = d.Key.String()
		}
	}
	if len(view.Documents(desired.KindIngress)) != 2*each || len(holders) != each {
		t.Fatalf("%d ingresses, %d names held", len(view.Documents(desired.KindIngress)), len(holders))
	}
}

func TestDryRunWritesNothingAndSaysWhatWouldBe(t *testing.T) {
	r, s := fresh(t)
	put(t, r, web("shop", ""))
	_, before, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	moved := corp("{name}.other.internal")
	out, err := r.Plan(t.Context(), []api.Change{{Key: moved.Key(), Declaration: declaration(t, moved)}})
	if err != nil {
		t.Fatal(err)
	}
	in := out.Ingresses[web("shop", "").Key().Path()]
	if in == nil || in.DNSName != "shop.other.internal" {
		t.Fatalf("%+v", out)
	}
	if _, after, err := s.List(t.Context(), ""); err != nil || after != before {
		t.Fatalf("revision %d became %d: %v", before, after, err)
	}
}

func TestDryRunProbesWithTheKeyThatCameOrTheStoredOne(t *testing.T) {
	s := store.Memory()
	defer s.Close()
	var keys []string
	r := registry.New(s, reversing{}, func(_ context.Context, _ *desired.Tailnet, key string) blueprint.Facts {
		keys = append(keys, key)
		return blueprint.Facts{Version: "0.29.2"}
	})
	put(t, r, apps())
	d := declaration(t, corp("{name}.example.internal"))
	d.Secrets = map[string]string{desired.SecretAPIKey: "first"}
	key := corp("").Key()
	for range 2 {
		out, err := r.Plan(t.Context(), []api.Change{{Key: key, Declaration: d}})
		if err != nil || out.Facts["corp"].Version != "0.29.2" {
			t.Fatalf("%+v %v", out, err)
		}
		if _, err := r.Put(t.Context(), key, d, registry.Guard{}, "w"); err != nil {
			t.Fatal(err)
		}
		d.Secrets = nil
	}
	if want := "first,first"; strings.Join(keys, ",") != want {
		t.Fatalf("probed with %v", keys)
	}
}

func TestChangesFiresForObjectsAndStatus(t *testing.T) {
	r, s := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := r.Changes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	fired := func() bool {
		select {
		case <-changes:
			return true
		case <-time.After(5 * time.Second):
			return false
		}
	}
	d := put(t, r, web("shop", ""))
	if !fired() {
		t.Fatal("a declaration is no change")
	}
	if err := r.SetStatus(ctx, d.Key, d.Revision, api.Status{MagicDNSName: "x"}); err != nil || !fired() {
		t.Fatalf("a status is no change: %v", err)
	}
	if _, err := s.Commit(ctx, store.Put("nodes/x", nil)); err != nil {
		t.Fatal(err)
	}
	cancel()
	for range changes {
		t.Error("what is not an object fires, or the channel stays open")
	}
}
