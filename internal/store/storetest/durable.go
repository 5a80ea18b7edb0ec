package storetest

import (
	"errors"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

func shut(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func reopenDocuments(t *testing.T, open func() store.Store) {
	s := open()
	commit(t, s, store.Put("a", []byte("1")), store.Put("b", nil), store.Put("c", make([]byte, store.MaxValue)))
	commit(t, s, store.Put("a", []byte("2")), store.Delete("b"))
	want, rev := listed(t, s, "")
	shut(t, s)

	s = open()
	defer shut(t, s)
	got, at := listed(t, s, "")
	wantEqual(t, "documents", got, want)
	wantEqual(t, "revision", at, rev)
	next := commit(t, s, store.Put("a", []byte("3"), store.IfRevision(want[0].Modified)))
	wantEqual(t, "document", get(t, s, "a"), store.Entry{Key: "a", Value: []byte("3"), Created: want[0].Created, Modified: next})
}

// reopenRevisions checks that a revision is not given away twice, also when
// nothing is left of its commit.
func reopenRevisions(t *testing.T, open func() store.Store) {
	var last store.Revision
	for range 5 {
		s := open()
		if _, rev := listed(t, s, ""); rev < last {
			t.Errorf("revision %d after %d", rev, last)
		}
		made := commit(t, s, store.Put("a", nil))
		gone := commit(t, s, store.Delete("a"))
		if made <= last || gone <= made {
			t.Errorf("revisions %d and %d after %d", made, gone, last)
		}
		last = gone
		shut(t, s)
	}
}

// reopenHistory checks that a watch either tells everything since its revision
// or refuses.
func reopenHistory(t *testing.T, open func() store.Store) {
	s := open()
	first := commit(t, s, store.Put("a", nil))
	second := commit(t, s, store.Put("b", nil))
	shut(t, s)

	s = open()
	defer shut(t, s)
	batches, err := s.Watch(t.Context(), "", first)
	if err == nil {
		wantBatch(t, batches, store.Batch{Revision: second, Events: []store.Event{present("b", "", second, second)}})
	} else if !errors.Is(err, store.ErrCompacted) {
		t.Errorf("Watch: %v", err)
	}
	batches = startWatch(t, s, "", second)
	third := commit(t, s, store.Put("c", nil))
	wantBatch(t, batches, store.Batch{Revision: third, Events: []store.Event{present("c", "", third, third)}})
}

func reopenModel(t *testing.T, open func() store.Store) {
	s := open()
	_, start := listed(t, s, "")
	w := newWalk(t, start)
	for range 8 {
		for range 30 {
			w.step(t, s)
		}
		shut(t, s)
		s = open()
		for range 5 {
			w.compare(t, s)
		}
	}
	shut(t, s)
}
