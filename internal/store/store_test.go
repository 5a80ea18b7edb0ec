package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/posterndev/terraform-provider-postern/internal/store"
	"github.com/posterndev/terraform-provider-postern/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.Memory() })
}

func TestMemoryStartsAtZero(t *testing.T) {
	s := store.Memory()
	defer s.Close()
	if rev, err := s.Commit(t.Context()); rev != 0 || err != nil {
		t.Errorf("revision %d, error %v", rev, err)
	}
	if _, err := s.Watch(t.Context(), "", -1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("watching after -1: %v", err)
	}
}

// fakeJournal remembers what is appended and can be held or made to fail.
type fakeJournal struct {
	entered chan struct{} // or nil; receives when Append begins
	release chan struct{} // or nil; Append waits for it

	mu     sync.Mutex // guards following
	groups [][]store.Revision
	err    error
	closed bool
}

func (j *fakeJournal) Append(batches []store.Batch) error {
	if j.entered != nil {
		j.entered <- struct{}{}
		<-j.release
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	var group []store.Revision
	for _, b := range batches {
		group = append(group, b.Revision)
	}
	j.groups = append(j.groups, group)
	return nil
}

func (j *fakeJournal) Close() error { j.closed = true; return nil }

func (j *fakeJournal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = err
}

func TestJournaled(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.Journaled(&fakeJournal{}, nil, 0, 0) })
}

func TestJournaledStartsFromEntries(t *testing.T) {
	s := store.Journaled(&fakeJournal{}, []store.Entry{{Key: "b", Created: 2, Modified: 7}, {Key: "a", Created: 3, Modified: 3}}, 9, 0)
	defer s.Close()
	entries, rev, err := s.List(t.Context(), "")
	if err != nil || rev != 9 || len(entries) != 2 || entries[0].Key != "a" || entries[1].Value == nil {
		t.Errorf("%v at %d, error %v", entries, rev, err)
	}
	if _, err := s.Watch(t.Context(), "", 8); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("watching what was before: %v", err)
	}
	if rev, err := s.Commit(t.Context(), store.Put("a", nil, store.IfRevision(3))); rev != 10 || err != nil {
		t.Errorf("revision %d, error %v", rev, err)
	}
}

// Nothing may be seen of a commit before it is durable, or of one that failed.
func TestCommitIsSeenOnlyWhenDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &fakeJournal{entered: make(chan struct{}), release: make(chan struct{})}
		s := store.Journaled(j, nil, 0, 0)
		batches, err := s.Watch(t.Context(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		invisible := func() {
			t.Helper()
			synctest.Wait()
			if entries, rev, err := s.List(t.Context(), ""); len(entries) != 0 || rev != 0 || err != nil {
				t.Errorf("%v at %d, error %v", entries, rev, err)
			}
			select {
			case b := <-batches:
				t.Errorf("batch %v", b)
			default:
			}
		}
		full := errors.New("disk is full")
		j.fail(full)
		result := make(chan error)
		commit := func() {
			_, err := s.Commit(t.Context(), store.Put("a", nil))
			result <- err
		}
		go commit()
		<-j.entered
		invisible()
		j.release <- struct{}{}
		if err := <-result; !errors.Is(err, full) {
			t.Errorf("error %v, want that of the journal", err)
		}
		invisible()

		j.fail(nil)
		go commit()
		<-j.entered
		invisible()
		j.release <- struct{}{}
		if err := <-result; err != nil {
			t.Errorf("commit after a failed one: %v", err)
		}
		if b := <-batches; b.Revision != 1 {
			t.Errorf("batch %v", b)
		}
		if err := s.Close(); err != nil || !j.closed {
			t.Errorf("Close: %v, journal closed %v", err, j.closed)
		}
	})
}

// Commits that wait for a running Append share the next one; each keeps its
// own fate.
func TestWaitingCommitsShareAnAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &fakeJournal{entered: make(chan struct{}), release: make(chan struct{})}
		s := store.Journaled(j, nil, 0, 0)
		var wg sync.WaitGroup
		commit := func(key string, want error, guards ...store.Guard) {
			wg.Go(func() {
				if _, err := s.Commit(t.Context(), store.Put(key, nil, guards...)); !errors.Is(err, want) {
					t.Errorf("%s: error %v, want %v", key, err, want)
				}
			})
			synctest.Wait()
		}
		commit("first", nil)
		<-j.entered
		for i := range 5 {
			commit(fmt.Sprintf("k%d", i), nil)
		}
		commit("k3", store.ErrConflict, store.IfAbsent())

		ctx, cancel := context.WithCancel(t.Context())
		withdrawn := make(chan error)
		go func() {
			_, err := s.Commit(ctx, store.Put("withdrawn", nil))
			withdrawn <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-withdrawn; !errors.Is(err, context.Canceled) {
			t.Errorf("ended context: %v", err)
		}

		j.release <- struct{}{}
		<-j.entered
		j.release <- struct{}{}
		wg.Wait()
		if want := [][]store.Revision{{1}, {2, 3, 4, 5, 6}}; !slices.EqualFunc(j.groups, want, slices.Equal) {
			t.Errorf("appended %v, want %v", j.groups, want)
		}
		if _, err := s.Get(t.Context(), "withdrawn"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("withdrawn commit: %v", err)
		}
		s.Close()
	})
}

func TestCloseAnswersWaitingCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &fakeJournal{entered: make(chan struct{}, 1000), release: make(chan struct{})}
		s := store.Journaled(j, nil, 0, 0)
		results := make(chan error)
		const commits = 20
		for i := range commits {
			go func() {
				_, err := s.Commit(t.Context(), store.Put(fmt.Sprint(i), nil))
				results <- err
			}()
		}
		<-j.entered
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("closed while a commit runs")
		}
		close(j.release)
		written := 0
		for range commits {
			err := <-results
			if err == nil {
				written++
			} else if !errors.Is(err, store.ErrClosed) {
				t.Errorf("waiting commit: %v", err)
			}
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		appended := slices.Concat(j.groups...)
		if written != len(appended) || written == 0 {
			t.Errorf("%d commits succeeded, %d were appended", written, len(appended))
		}
	})
}

func TestCloseEndsWatches(t *testing.T) {
	s := store.Memory()
	var watches []<-chan store.Batch
	for range 100 {
		batches, err := s.Watch(t.Context(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, batches)
	}
	s.Close()
	for _, batches := range watches {
		select {
		case <-batches:
		default:
			t.Fatal("a watch is open although the store is closed")
		}
	}
}

func TestLateReaderLosesItsWatch(t *testing.T) {
	const history, commits = 4, 100
	s := store.Journaled(nil, nil, 0, history)
	defer s.Close()
	late, err := s.Watch(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for range commits {
		if _, err := s.Commit(t.Context(), store.Put("a", nil)); err != nil {
			t.Fatal(err)
		}
	}
	last := store.Revision(0)
	for b := range late {
		if b.Revision != last+1 {
			t.Errorf("revision %d after %d", b.Revision, last)
		}
		last = b.Revision
	}
	if last >= commits {
		t.Errorf("all %d commits came", last)
	}
	if _, err := s.Watch(t.Context(), "", commits-history-1); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("watching a forgotten commit: %v", err)
	}
	oldest, err := s.Watch(t.Context(), "", commits-history)
	if err != nil {
		t.Fatal(err)
	}
	if b := <-oldest; b.Revision != commits-history+1 {
		t.Errorf("revision %d", b.Revision)
	}
}

func TestHistoryIsBoundedInBytes(t *testing.T) {
	s := store.Memory()
	defer s.Close()
	for range 40 {
		if _, err := s.Commit(t.Context(), store.Put("a", make([]byte, store.MaxValue))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Watch(t.Context(), "", 5); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("watching 35 MiB back: %v", err)
	}
	if _, err := s.Watch(t.Context(), "", 20); err != nil {
		t.Errorf("watching 20 MiB back: %v", err)
	}
}

func TestConflictErrorText(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&store.ConflictError{Key: "a/b", Have: 7}, "a/b: document was changed by someone else: it is at revision 7"},
		{&store.ConflictError{Key: "a/b"}, "a/b: document was changed by someone else: it is absent"},
	} {
		if c.err.Error() != c.want {
			t.Errorf("%q, want %q", c.err, c.want)
		}
	}
}
