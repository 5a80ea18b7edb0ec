package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// naive is a store in the plainest form, to compare with.
type naive struct {
	docs map[string]store.Entry
}

// conflict returns the first guard that does not hold.
func (n naive) conflict(ops []store.Op) *store.ConflictError {
	for _, op := range ops {
		want, ok := op.Guard.Wanted()
		if have := n.docs[op.Key].Modified; ok && have != want {
			return &store.ConflictError{Key: op.Key, Have: have}
		}
	}
	return nil
}

// apply carries out a commit that the real store gave a revision, and returns
// its events.
func (n naive) apply(ops []store.Op, rev store.Revision) []store.Event {
	events := []store.Event{}
	for _, op := range ops {
		have, present := n.docs[op.Key]
		switch {
		case op.Check:
		case op.Delete && present:
			delete(n.docs, op.Key)
			events = append(events, absent(op.Key, rev))
		case op.Delete:
		default:
			e := store.Entry{Key: op.Key, Value: append([]byte{}, op.Value...), Created: rev, Modified: rev}
			if present {
				e.Created = have.Created
			}
			n.docs[op.Key] = e
			events = append(events, store.Event{Entry: e})
		}
	}
	slices.SortFunc(events, func(a, b store.Event) int { return strings.Compare(a.Entry.Key, b.Entry.Key) })
	return events
}

func (n naive) changes(ops []store.Op) bool {
	return slices.ContainsFunc(ops, func(op store.Op) bool {
		_, present := n.docs[op.Key]
		return !op.Check && (!op.Delete || present)
	})
}

func (n naive) under(prefix string) []store.Entry {
	entries := []store.Entry{}
	for key, e := range n.docs {
		if strings.HasPrefix(key, prefix) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries
}

// walk compares a store with the naive one over random steps.
type walk struct {
	rng     *rand.Rand
	model   naive
	rev     store.Revision
	batches []store.Batch
}

func newWalk(t *testing.T, start store.Revision) *walk {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &walk{rng: rand.New(rand.NewPCG(seed, 0)), model: naive{docs: make(map[string]store.Entry)}, rev: start}
}

func (w *walk) key() string {
	return []string{"a", "b", "b/x", "c/d"}[w.rng.IntN(4)] + fmt.Sprintf("/%d", w.rng.IntN(6))
}

// guard holds more often than not.
func (w *walk) guard(key string) store.Guard {
	switch have := w.model.docs[key].Modified; w.rng.IntN(8) {
	case 0:
		return store.IfAbsent()
	case 1:
		return store.IfRevision(have + store.Revision(w.rng.IntN(3)) - 1)
	case 2, 3:
		return store.IfRevision(have)
	}
	return store.Guard{}
}

func (w *walk) value() []byte {
	return bytes.Repeat([]byte{byte(w.rng.Uint32())}, w.rng.IntN(6000))
}

func (w *walk) ops() []store.Op {
	var ops []store.Op
	seen := make(map[string]bool)
	for range w.rng.IntN(6) {
		key := w.key()
		if seen[key] {
			continue
		}
		seen[key] = true
		switch g := w.guard(key); w.rng.IntN(6) {
		case 0:
			ops = append(ops, store.Check(key, g))
		case 1, 2:
			ops = append(ops, store.Delete(key, g))
		default:
			ops = append(ops, store.Put(key, w.value(), g))
		}
	}
	return ops
}

func (w *walk) step(t *testing.T, s store.Store) {
	t.Helper()
	ops := w.ops()
	rev, err := s.Commit(t.Context(), ops...)
	if want := w.model.conflict(ops); want != nil {
		var got *store.ConflictError
		if !errors.As(err, &got) || *got != *want {
			t.Fatalf("commit %+v: error %v, want %v", ops, err, want)
		}
		return
	}
	changes := w.model.changes(ops)
	if err != nil || changes != (rev > w.rev) || !changes && rev != w.rev {
		t.Fatalf("commit %+v: revision %d after %d, error %v", ops, rev, w.rev, err)
	}
	if changes {
		w.rev = rev
		w.batches = append(w.batches, store.Batch{Revision: rev, Events: w.model.apply(ops, rev)})
	}
}

func (w *walk) compare(t *testing.T, s store.Store) {
	t.Helper()
	prefix := []string{"", "b", "b/", "b/x/", "c/d/1"}[w.rng.IntN(5)]
	entries, rev := listed(t, s, prefix)
	wantEqual(t, fmt.Sprintf("documents under %q", prefix), entries, w.model.under(prefix))
	wantEqual(t, "revision", rev, w.rev)
	key := w.key()
	got, err := s.Get(t.Context(), key)
	want, present := w.model.docs[key]
	wantEqual(t, key, got, want)
	if present == errors.Is(err, store.ErrNotFound) || present != (err == nil) {
		t.Errorf("Get(%q): error %v, present %v", key, err, present)
	}
}

func model(t *testing.T, s store.Store) {
	_, start := listed(t, s, "")
	w := newWalk(t, start)
	batches := startWatch(t, s, "b/", start)
	for i := range 400 {
		w.step(t, s)
		if i%4 == 0 {
			w.compare(t, s)
		}
		if t.Failed() {
			return
		}
	}
	for _, b := range w.batches {
		b.Events = slices.DeleteFunc(b.Events, func(ev store.Event) bool { return !strings.HasPrefix(ev.Entry.Key, "b/") })
		if len(b.Events) > 0 {
			wantBatch(t, batches, b)
		}
	}
}
