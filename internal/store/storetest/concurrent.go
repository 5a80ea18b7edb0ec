package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// counter increments by compare and set from many goroutines: no increment may
// get lost.
func counter(t *testing.T, s store.Store) {
	const workers, each = 8, 20
	commit(t, s, store.Put("counter", []byte("0")))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				if err := increment(t, s, fmt.Sprintf("done/%d/%d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantEqual(t, "counter", string(get(t, s, "counter").Value), strconv.Itoa(workers*each))
	entries, _ := listed(t, s, "done/")
	wantEqual(t, "markers", len(entries), workers*each)
}

func increment(t *testing.T, s store.Store, marker string) error {
	for {
		have, err := s.Get(t.Context(), "counter")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(have.Value))
		if err != nil {
			return err
		}
		_, err = s.Commit(t.Context(),
			store.Put("counter", strconv.AppendInt(nil, int64(n+1), 10), store.IfRevision(have.Modified)),
			store.Put(marker, nil, store.IfAbsent()))
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// snapshots lists while pairs of documents change together. A list that shows
// them apart, or older than a commit that had returned, is wrong.
func snapshots(t *testing.T, s store.Store) {
	rev := commit(t, s, store.Put("pair/a", []byte("0")), store.Put("pair/b", []byte("0")))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			last := rev
			for {
				select {
				case <-stop:
					return
				default:
				}
				entries, at, err := s.List(t.Context(), "pair/")
				if err != nil || len(entries) != 2 {
					t.Errorf("List: %d entries, %v", len(entries), err)
					return
				}
				a, b := entries[0], entries[1]
				if string(a.Value) != string(b.Value) || a.Modified != b.Modified || at < a.Modified || at < last {
					t.Errorf("at %d after %d: %s@%d and %s@%d", at, last, a.Value, a.Modified, b.Value, b.Modified)
					return
				}
				last = at
			}
		})
	}
	for i := range 100 {
		value := strconv.AppendInt(nil, int64(i), 10)
		rev := commit(t, s, store.Put("pair/a", value), store.Put("pair/b", value))
		if e := get(t, s, "pair/b"); e.Modified != rev {
			t.Errorf("read of revision %d after the commit of %d", e.Modified, rev)
		}
	}
	close(stop)
	readers.Wait()
}
