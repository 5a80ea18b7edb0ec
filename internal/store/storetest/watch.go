package storetest

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

func startWatch(t *testing.T, s store.Store, prefix string, after store.Revision) <-chan store.Batch {
	t.Helper()
	batches, err := s.Watch(t.Context(), prefix, after)
	if err != nil {
		t.Fatalf("Watch(%q, %d): %v", prefix, after, err)
	}
	return batches
}

func wantBatch(t *testing.T, batches <-chan store.Batch, want store.Batch) {
	t.Helper()
	got, ok := next(t, batches)
	if !ok {
		t.Fatal("the watch ended")
	}
	wantEqual(t, "batch", got, want)
}

func present(key, value string, created, modified store.Revision) store.Event {
	return store.Event{Entry: store.Entry{Key: key, Value: []byte(value), Created: created, Modified: modified}}
}

func absent(key string, rev store.Revision) store.Event {
	return store.Event{Entry: store.Entry{Key: key, Modified: rev}, Deleted: true}
}

func watch(t *testing.T, s store.Store) {
	_, start := listed(t, s, "")
	all, some := startWatch(t, s, "", start), startWatch(t, s, "b/", start)

	first := commit(t, s, store.Put("b/2", []byte("x")), store.Put("a", nil), store.Put("b/1", []byte("y")))
	commit(t, s, store.Delete("none"))
	second := commit(t, s, store.Put("a", []byte("z")))
	third := commit(t, s, store.Delete("b/2"), store.Put("b/1", []byte("w")), store.Delete("none"))
	fourth := commit(t, s, store.Put("b/2", nil))

	wantBatch(t, all, store.Batch{Revision: first, Events: []store.Event{
		present("a", "", first, first), present("b/1", "y", first, first), present("b/2", "x", first, first)}})
	wantBatch(t, all, store.Batch{Revision: second, Events: []store.Event{present("a", "z", first, second)}})
	wantBatch(t, all, store.Batch{Revision: third, Events: []store.Event{present("b/1", "w", first, third), absent("b/2", third)}})
	wantBatch(t, all, store.Batch{Revision: fourth, Events: []store.Event{present("b/2", "", fourth, fourth)}})

	wantBatch(t, some, store.Batch{Revision: first, Events: []store.Event{
		present("b/1", "y", first, first), present("b/2", "x", first, first)}})
	wantBatch(t, some, store.Batch{Revision: third, Events: []store.Event{present("b/1", "w", first, third), absent("b/2", third)}})
	wantBatch(t, some, store.Batch{Revision: fourth, Events: []store.Event{present("b/2", "", fourth, fourth)}})
}

func watchFrom(t *testing.T, s store.Store) {
	_, start := listed(t, s, "")
	var revs []store.Revision
	for i := range 5 {
		revs = append(revs, commit(t, s, store.Put("k", fmt.Append(nil, i))))
	}
	for skip := range 6 {
		after := start
		if skip > 0 {
			after = revs[skip-1]
		}
		batches := startWatch(t, s, "k", after)
		for i := skip; i < 5; i++ {
			wantBatch(t, batches, store.Batch{Revision: revs[i], Events: []store.Event{present("k", fmt.Sprint(i), revs[0], revs[i])}})
		}
	}
	// Revisions to come are waited for.
	never, later := startWatch(t, s, "", math.MaxInt64), startWatch(t, s, "", revs[4])
	rev := commit(t, s, store.Put("l", nil))
	wantBatch(t, later, store.Batch{Revision: rev, Events: []store.Event{present("l", "", rev, rev)}})
	select {
	case b := <-never:
		t.Errorf("batch %v after the last revision", b)
	default:
	}
}

func watchEnds(t *testing.T, s store.Store) {
	rev := commit(t, s, store.Put("a", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	idle, err := s.Watch(ctx, "", rev)
	if err != nil {
		t.Fatal(err)
	}
	busy, err := s.Watch(ctx, "", rev)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		commit(t, s, store.Put("a", nil))
	}
	next(t, busy)
	cancel()
	for _, batches := range []<-chan store.Batch{idle, busy} {
		n := 0
		for ok := true; ok; n++ {
			_, ok = next(t, batches)
		}
		if n > 4 {
			t.Errorf("%d batches of 3 commits", n-1)
		}
	}
}

func watchOwnership(t *testing.T, s store.Store) {
	_, start := listed(t, s, "")
	one, other := startWatch(t, s, "", start), startWatch(t, s, "", start)
	rev := commit(t, s, store.Put("a", []byte("value")))
	b, _ := next(t, one)
	copy(b.Events[0].Entry.Value, "XXXXX")
	b.Events[0].Entry.Key = "b"
	wantBatch(t, other, store.Batch{Revision: rev, Events: []store.Event{present("a", "value", rev, rev)}})
	wantEqual(t, "document", string(get(t, s, "a").Value), "value")
}

// watchConcurrent has several writers and watches that start in between. Each
// watch must tell exactly the story that leads from its list to the last one.
func watchConcurrent(t *testing.T, s store.Store) {
	const writers, commits = 4, 40
	prefixes := []string{"", "w1/", "shared/", "w"}
	var written, followed, listed sync.WaitGroup
	for w := range writers {
		written.Go(func() {
			for i := range commits {
				key := fmt.Sprintf("w%d/%d", w, i%5)
				op := store.Put(key, fmt.Append(nil, i))
				if i%7 == 6 {
					op = store.Delete(key)
				}
				if _, err := s.Commit(t.Context(), op, store.Put(fmt.Sprintf("shared/%d", i%3), fmt.Append(nil, w, i))); err != nil {
					t.Errorf("Commit: %v", err)
				}
			}
		})
	}
	listed.Add(len(prefixes))
	for _, prefix := range prefixes {
		followed.Go(func() { follow(t, s, prefix, listed.Done) })
	}
	written.Wait()
	listed.Wait() // so that everyone gets the end marker as an event
	commit(t, s, store.Put("shared/end", nil), store.Put("w1/end", nil))
	followed.Wait()
}

// follow replays a watch over a list until the end marker and compares the
// result with a list made then.
func follow(t *testing.T, s store.Store, prefix string, listed func()) {
	entries, at, err := s.List(t.Context(), prefix)
	listed()
	if err != nil {
		t.Errorf("List: %v", err)
		return
	}
	state := byKey(entries)
	batches, err := s.Watch(t.Context(), prefix, at)
	if err != nil {
		t.Errorf("Watch: %v", err)
		return
	}
	late := time.After(patience)
	for ended := false; !ended; {
		var b store.Batch
		var ok bool
		select {
		case b, ok = <-batches:
		case <-late:
		}
		if !ok || b.Revision <= at {
			t.Errorf("watch of %q ended, stood still or went back: revision %d after %d", prefix, b.Revision, at)
			return
		}
		at = b.Revision
		for _, ev := range b.Events {
			if ev.Entry.Modified != b.Revision {
				t.Errorf("event of revision %d in a batch of %d", ev.Entry.Modified, b.Revision)
			}
			state[ev.Entry.Key] = ev.Entry
			if ev.Deleted {
				delete(state, ev.Entry.Key)
			}
			ended = ended || ev.Entry.Key == "shared/end" || ev.Entry.Key == "w1/end"
		}
	}
	entries, _, err = s.List(t.Context(), prefix)
	if err != nil {
		t.Errorf("List: %v", err)
	}
	wantEqual(t, fmt.Sprintf("documents under %q as watched", prefix), state, byKey(entries))
}

func byKey(entries []store.Entry) map[string]store.Entry {
	m := make(map[string]store.Entry, len(entries))
	for _, e := range entries {
		m[e.Key] = e
	}
	return m
}

// watchLate has a reader that stops for a long time. It may lose the watch but
// must never see a gap.
func watchLate(t *testing.T, s store.Store) {
	_, start := listed(t, s, "")
	batches := startWatch(t, s, "", start)
	value := make([]byte, store.MaxValue)
	const commits = 50
	want := make([]store.Revision, commits)
	for i := range want {
		want[i] = commit(t, s, store.Put("a", value))
	}
	n := 0
	for ; n < commits; n++ {
		b, ok := next(t, batches)
		if !ok {
			break
		}
		wantEqual(t, "revision", b.Revision, want[n])
	}
	// Whoever lost the watch lists and watches again.
	_, at := listed(t, s, "")
	batches = startWatch(t, s, "", at)
	rev := commit(t, s, store.Put("b", nil))
	wantBatch(t, batches, store.Batch{Revision: rev, Events: []store.Event{present("b", "", rev, rev)}})
}
