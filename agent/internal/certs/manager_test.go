package certs

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a Storage in memory, which can be told to fail.
type shelf struct {
	values map[string][]byte
	fail   error
}

func newShelf() *shelf { return &shelf{values: map[string][]byte{}} }

func (s *shelf) Read(_ context.Context, id string) ([]byte, error) {
	value, ok := s.values[id]
	if !ok {
		return nil, ErrNotFound
	}
	return bytes.Clone(value), nil
}

func (s *shelf) Write(_ context.Context, id string, value []byte) error {
	if s.fail != nil {
		return s.fail
	}
	if value == nil {
		delete(s.values, id)
		return nil
	}
	s.values[id] = bytes.Clone(value)
	return nil
}

func (s *shelf) Names(context.Context) ([]string, error) {
	var names []string
	for id := range s.values {
		names = append(names, id)
	}
	return names, nil
}

// issuers finds CAs by name; one that is nil is out of order.
type issuers map[string]*CA

func (i issuers) find(name string) (*CA, error) {
	if ca := i[name]; ca != nil {
		return ca, nil
	}
	return nil, errors.New("its key file is not there")
}

func request(id string, names ...string) Request {
	return Request{ID: id, Issuer: "apps", Names: names}
}

func one(t *testing.T, m *Manager, r Request) *Pair {
	t.Helper()
	results, _ := m.Reconcile(t.Context(), []Request{r})
	if got := results[r.ID]; got.Err != nil || got.Pair == nil {
		t.Fatalf("%+v", got)
	}
	return results[r.ID].Pair
}

func TestPairsAreRenewedInTimeAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, time.Now())
		m := NewManager(newShelf(), issuers{"apps": ca}.find)
		r := request("shop", "shop.internal")
		results, next := m.Reconcile(t.Context(), []Request{r})
		first := results["shop"].Pair
		if first == nil || !next.Equal(first.RenewAt()) {
			t.Fatalf("%+v, next at %s", results, next)
		}
		time.Sleep(time.Until(next) - time.Second)
		if again := one(t, m, r); again != first {
			t.Fatal("renewed before it was due")
		}
		time.Sleep(time.Second)
		second := one(t, m, r)
		if second == first || !second.NotAfter.After(first.NotAfter) {
			t.Fatalf("not renewed: until %s, before until %s", second.NotAfter, first.NotAfter)
		}
		for range 20 { // years
			_, next := m.Reconcile(t.Context(), []Request{r})
			if !next.After(time.Now()) {
				t.Fatalf("it asks to be called again at %s, which is past", next)
			}
			time.Sleep(time.Until(next))
			if err := Check(one(t, m, r), r.Names, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestPairsOutliveTheProcess(t *testing.T) {
	ca, storage := newCA(t, time.Now()), newShelf()
	r := request("shop", "shop.internal")
	first := one(t, NewManager(storage, issuers{"apps": ca}.find), r)
	again := one(t, NewManager(storage, issuers{"apps": ca}.find), r)
	if !bytes.Equal(first.CertPEM, again.CertPEM) {
		t.Fatal("issued again after a restart")
	}
	// An issuer that is out of order does not matter to what is good.
	if kept := one(t, NewManager(storage, issuers{}.find), r); !bytes.Equal(first.CertPEM, kept.CertPEM) {
		t.Fatal("another pair")
	}
	storage.values["shop"] = []byte("garbage")
	if mended := one(t, NewManager(storage, issuers{"apps": ca}.find), r); bytes.Equal(first.CertPEM, mended.CertPEM) {
		t.Fatal("garbage was read")
	}
}

func TestFaultsStayWithTheirRequest(t *testing.T) {
	m := NewManager(newShelf(), issuers{"apps": newCA(t, time.Now())}.find)
	results, next := m.Reconcile(t.Context(), []Request{
		request("a", "a.internal"),
		{ID: "b", Issuer: "gone", Names: []string{"b.internal"}},
		{ID: "c", Issuer: "apps"},
		request("d", "d.internal"),
	})
	for id, ok := range map[string]bool{"a": true, "b": false, "c": false, "d": true} {
		if r := results[id]; (r.Pair != nil) != ok || (r.Err == nil) != ok {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if err := results["b"].Err; err == nil || !strings.Contains(err.Error(), "issuer gone") {
		t.Errorf("b: %v", err)
	}
	if wait := time.Until(next); wait <= 0 || wait > time.Minute {
		t.Errorf("what failed is tried again in %s", wait)
	}
}

func TestWhatIsAskedForOtherwiseIsIssuedAnew(t *testing.T) {
	storage, all := newShelf(), issuers{"apps": newCA(t, time.Now())}
	m := NewManager(storage, all.find)
	first := one(t, m, request("shop", "shop.internal"))
	more := one(t, m, request("shop", "shop.internal", "store.internal"))
	if more == first || more.TLS.Leaf.DNSNames[0] != "shop.internal" {
		t.Fatal("another name, and the same certificate")
	}
	if turned := one(t, m, request("shop", "store.internal", "shop.internal")); turned.TLS.Leaf.Subject.CommonName != "store.internal" {
		t.Fatal("the first name is not the subject")
	}
	all["apps"] = newCA(t, time.Now())
	if anew := one(t, m, request("shop", "store.internal", "shop.internal")); Handshake(t.Context(), serveAlways(anew), "shop.internal", roots(all["apps"]), time.Now()) != nil {
		t.Fatal("another CA, and the old one's certificate")
	}
	if results, next := m.Reconcile(t.Context(), nil); len(results) != 0 || !next.IsZero() || len(storage.values) != 0 {
		t.Fatalf("asked for nothing: %v, next %s, kept %v", results, next, storage.values)
	}
}

func TestGoodPairIsServedWhileRenewalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage, all := newShelf(), issuers{"apps": newCA(t, time.Now())}
		m := NewManager(storage, all.find)
		r := request("shop", "shop.internal")
		first := one(t, m, r)
		ca := all["apps"]
		time.Sleep(time.Until(first.RenewAt()))
		var waits []time.Duration
		for name, fault := range map[string]func(){
			"storage": func() { storage.fail = errors.New("the disk is full") },
			"issuer":  func() { storage.fail, all["apps"] = nil, nil },
		} {
			fault()
			results, next := m.Reconcile(t.Context(), []Request{r})
			if got := results["shop"]; got.Pair != first || got.Err == nil {
				t.Fatalf("%s: %+v", name, got)
			}
			waits = append(waits, time.Until(next))
		}
		if waits[0] != firstRetry || waits[1] != 2*firstRetry {
			t.Errorf("tried again after %v", waits)
		}
		for range 20 {
			_, next := m.Reconcile(t.Context(), []Request{r})
			if wait := time.Until(next); wait > longestRetry {
				t.Fatalf("tried again only after %s", wait)
			}
		}
		time.Sleep(time.Until(first.NotAfter))
		results, _ := m.Reconcile(t.Context(), []Request{r})
		if got := results["shop"]; got.Pair != nil || got.Err == nil {
			t.Fatalf("an expired pair is given: %+v", got)
		}
		all["apps"], storage.fail = ca, nil
		if one(t, m, r) == first {
			t.Fatal("not renewed once it could be")
		}
	})
}

func TestEndOfTheCAIsToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, time.Now())
		m := NewManager(newShelf(), issuers{"apps": ca}.find)
		r := request("shop", "shop.internal")
		time.Sleep(time.Until(ca.NotAfter()) - 60*24*time.Hour)
		last := one(t, m, r)
		time.Sleep(time.Until(last.RenewAt()))
		results, next := m.Reconcile(t.Context(), []Request{r})
		if got := results["shop"]; got.Pair != last || got.Err == nil || !strings.Contains(got.Err.Error(), "make a new CA") {
			t.Fatalf("%+v", got)
		}
		if !next.After(time.Now()) {
			t.Fatalf("next at %s", next)
		}
	})
}
