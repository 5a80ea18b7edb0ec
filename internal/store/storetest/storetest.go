// Package storetest checks that an implementation of store.Store does what the
// comment of that interface says.
package storetest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// Run checks one implementation. Each call of open returns another empty store,
// which the suite closes.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, check := range map[string]func(*testing.T, store.Store){
		"Documents":          documents,
		"CreatedAndModified": createdAndModified,
		"Guards":             guards,
		"AllOrNothing":       allOrNothing,
		"NoChange":           noChange,
		"KeySyntax":          keySyntax,
		"Limits":             limits,
		"List":               list,
		"Ownership":          ownership,
		"EndedContext":       endedContext,
		"Closed":             closed,
		"Watch":              watch,
		"WatchFrom":          watchFrom,
		"WatchEnds":          watchEnds,
		"WatchOwnership":     watchOwnership,
		"WatchConcurrent":    watchConcurrent,
		"WatchLate":          watchLate,
		"Counter":            counter,
		"Snapshots":          snapshots,
		"Model":              model,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			})
			check(t, s)
		})
	}
}

// RunDurable checks what must outlive a store that is closed and opened again.
// Calls of open with the same place mean the same store; place is an empty
// directory, and may also serve as a name.
func RunDurable(t *testing.T, open func(t *testing.T, place string) store.Store) {
	for name, check := range map[string]func(*testing.T, func() store.Store){
		"Documents": reopenDocuments,
		"Revisions": reopenRevisions,
		"History":   reopenHistory,
		"Model":     reopenModel,
	} {
		t.Run(name, func(t *testing.T) {
			place := t.TempDir()
			check(t, func() store.Store { return open(t, place) })
		})
	}
}

// commit fails the test when the commit fails.
func commit(t *testing.T, s store.Store, ops ...store.Op) store.Revision {
	t.Helper()
	rev, err := s.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	return rev
}

func get(t *testing.T, s store.Store, key string) store.Entry {
	t.Helper()
	e, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get(%q): %v", key, err)
	}
	return e
}

func listed(t *testing.T, s store.Store, prefix string) ([]store.Entry, store.Revision) {
	t.Helper()
	entries, rev, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatalf("List(%q): %v", prefix, err)
	}
	return entries, rev
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func wantEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	// Without it, cmp looks at the bytes one by one. nil and empty stay apart.
	whole := cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
	if diff := cmp.Diff(want, got, whole); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// next returns the next batch, and false when the channel is closed.
func next(t *testing.T, batches <-chan store.Batch) (store.Batch, bool) {
	t.Helper()
	select {
	case b, ok := <-batches:
		return b, ok
	case <-time.After(patience):
		t.Fatal("no batch came")
		return store.Batch{}, false
	}
}

func keys(entries []store.Entry) []string {
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Key)
	}
	return names
}
