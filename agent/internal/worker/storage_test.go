package worker

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

var errAbsent = errors.New("absent")

// bound seals by writing the name in front, so that a test sees a value under another name.
type bound struct{}

func (bound) Seal(name string, text []byte) []byte { return append([]byte(name+"|"), text...) }

func (bound) Unseal(name string, sealed []byte) ([]byte, error) {
	text, ok := bytes.CutPrefix(sealed, []byte(name+"|"))
	if !ok {
		return nil, errors.New("sealed under another name")
	}
	return text, nil
}

func TestSealedValuesStayWithTheirObject(t *testing.T) {
	db := store.Memory()
	defer db.Close()
	s := New(Deps{Store: db, Sealer: bound{}})
	one := s.sealed("nodes", desired.Key{Kind: desired.KindIngress, Namespace: "a", Name: "b"}, errAbsent)
	// A key that is another's prefix must not reach it.
	other := s.sealed("nodes", desired.Key{Kind: desired.KindIngress, Namespace: "a", Name: "b-c"}, errAbsent)
	ctx := t.Context()
	for _, name := range []string{"_machinekey", "profile-é/..", ""} {
		if err := one.Write(ctx, name+"x", []byte("value")); err != nil {
			t.Fatal(err)
		}
		if got, err := one.Read(ctx, name+"x"); err != nil || string(got) != "value" {
			t.Fatalf("%q: %q %v", name, got, err)
		}
	}
	if err := other.Write(ctx, "kept", []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if names, err := one.Names(ctx); err != nil || len(names) != 3 || !slices.Contains(names, "profile-é/..x") {
		t.Fatalf("%q %v", names, err)
	}
	if err := one.Write(ctx, "x", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Read(ctx, "x"); !errors.Is(err, errAbsent) {
		t.Fatalf("a forgotten value: %v", err)
	}
	if err := one.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	if names, err := one.Names(ctx); err != nil || len(names) != 0 {
		t.Fatalf("%q %v", names, err)
	}
	if got, err := other.Read(ctx, "kept"); err != nil || string(got) != "mine" {
		t.Fatalf("another object lost its value: %q %v", got, err)
	}
}

func TestProberTellsEachTargetThatIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	p := newProber()
	faults := p.probe(t.Context(), map[string][]string{"b": {l.Addr().String(), gone.Addr().String()}, "a": {gone.Addr().String()}})
	if len(faults) != 2 || !strings.HasPrefix(faults[0], `exposes["a"]: dial tcp `+gone.Addr().String()) || !strings.HasPrefix(faults[1], `exposes["b"]`) ||
		!strings.HasSuffix(faults[0], "connection refused; start the backend, or correct backend.targets") {
		t.Fatalf("%q", faults)
	}
	if faults := p.probe(t.Context(), map[string][]string{"b": {l.Addr().String()}}); len(faults) != 0 {
		t.Fatalf("%q", faults)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	clear(p.good) // as after its time
	if faults := p.probe(t.Context(), map[string][]string{"b": {l.Addr().String()}}); len(faults) != 1 {
		t.Fatalf("a backend that went is still reachable: %q", faults)
	}
}
