package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// memory keeps the last status and counts writes.
type memory struct {
	last   api.Status
	writes int
	err    error
}

func (m *memory) SetStatus(_ context.Context, _ desired.Key, _ int64, s api.Status) error {
	if m.err != nil {
		return m.err
	}
	m.last, m.writes = s, m.writes+1
	return nil
}

func document(revision int64, s api.Status) *api.Document {
	return &api.Document{Key: desired.Key{Kind: desired.KindIngress, Namespace: "default", Name: "shop"}, Revision: revision, Status: s}
}

func TestReadyNeedsEveryCondition(t *testing.T) {
	m := &memory{}
	r := Begin(m, document(3, api.Status{}), desired.Registered, desired.PolicyReady)
	r.False(desired.Registered, desired.ReasonControlPlaneAway, "it does not answer")
	if err := r.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := m.last.Conditions.Get(desired.Ready, 3)
	want := "Registered: it does not answer; PolicyReady: not observed yet"
	if ready.Status != desired.False || ready.Reason != desired.ReasonControlPlaneAway || ready.Message != want {
		t.Fatalf("%+v", ready)
	}
	r = Begin(m, document(3, m.last), desired.Registered, desired.PolicyReady)
	r.True(desired.Registered, "as shop.tail.test")
	r.NotNeeded(desired.PolicyReady, "nobody is given access")
	if err := r.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.last.Conditions.Get(desired.Ready, 3); got.Status != desired.True {
		t.Fatalf("%+v", got)
	}
	if got := m.last.Conditions.Get(desired.Ready, 4); got.Status != desired.Uncertain {
		t.Fatalf("a condition of an older spec counts for a newer one: %+v", got)
	}
}

func TestSameStatusIsNotWrittenAndKeepsItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		report := func() {
			r := Begin(m, document(1, m.last), desired.Registered)
			r.True(desired.Registered, "as shop.tail.test")
			if err := r.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		report()
		since := m.last.Conditions.Get(desired.Registered, 1).Since
		time.Sleep(time.Hour)
		report()
		if m.writes != 1 || !m.last.Conditions.Get(desired.Registered, 1).Since.Equal(since) {
			t.Fatalf("%d writes, since %v", m.writes, m.last.Conditions.Get(desired.Registered, 1).Since)
		}
	})
}

func TestOverrideDecidesReady(t *testing.T) {
	m := &memory{}
	r := Begin(m, document(1, api.Status{}))
	r.NotReady(desired.ReasonDNSNameConflict, "ingress a/b holds it")
	r.NotReady(desired.ReasonInvalidSpec, "later")
	if err := r.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.last.Conditions.Get(desired.Ready, 1); got.Reason != desired.ReasonDNSNameConflict || got.Message != "ingress a/b holds it" {
		t.Fatalf("%+v", got)
	}
}

func TestObjectThatMovedOnIsNoError(t *testing.T) {
	m := &memory{err: &api.Error{Kind: api.ErrConflict}}
	if err := Begin(m, document(1, api.Status{})).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
