package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/posterndev/terraform-provider-postern/internal/store"
	"github.com/posterndev/terraform-provider-postern/internal/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashPathEnv); path != "" {
		os.Exit(crashChild(path))
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, filepath.Join(t.TempDir(), "store.db")) })
	storetest.RunDurable(t, func(t *testing.T, place string) store.Store { return open(t, filepath.Join(place, "store.db")) })
}

func open(t testing.TB, path string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(path, opts...)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*Store)
}

func commit(t testing.TB, s store.Store, ops ...store.Op) {
	t.Helper()
	if _, err := s.Commit(context.Background(), ops...); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

// fill makes a file with trees of several levels, long values and free pages.
func fill(t testing.TB, path string) {
	t.Helper()
	s := open(t, path)
	for i := range 30 {
		var ops []store.Op
		for k := range 10 {
			name := i*10 + k
			ops = append(ops, store.Put(fmt.Sprintf("objects/kind/default/name-%03d", name), []byte(strings.Repeat("x", name*2))))
		}
		commit(t, s, ops...)
	}
	commit(t, s, store.Put("certs/big", make([]byte, 50_000)), store.Delete("objects/kind/default/name-007"))
	var gone []store.Op
	for i := range 100 {
		gone = append(gone, store.Delete(fmt.Sprintf("objects/kind/default/name-%03d", i)))
	}
	commit(t, s, gone...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsPrivateAndAlone(t *testing.T) {
	dir := t.TempDir()
	open(t, filepath.Join(dir, "store.db"))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v in the directory, error %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

func TestInstanceStaysWithTheFile(t *testing.T) {
	dir := t.TempDir()
	path, copied := filepath.Join(dir, "store.db"), filepath.Join(dir, "copy.db")
	s := open(t, path)
	first := s.Instance()
	commit(t, s, store.Put("a", nil))
	s.Close()
	if err := os.WriteFile(copied, read(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, copied} {
		if again := open(t, path).Instance(); again != first || len(again) != 32 {
			t.Errorf("instance %q, then %q", first, again)
		}
	}
	if other := open(t, filepath.Join(dir, "other.db")).Instance(); other == first {
		t.Errorf("two files are instance %q", first)
	}
}

func TestHistoryOption(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"), History(3))
	for range 10 {
		commit(t, s, store.Put("a", nil))
	}
	if _, err := s.Watch(t.Context(), "", 6); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("watching after 6: %v", err)
	}
	if _, err := s.Watch(t.Context(), "", 7); err != nil {
		t.Errorf("watching after 7: %v", err)
	}
}

func TestLockedByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	fill(t, path)
	s := open(t, path)
	_, err := Open(path, LockTimeout(50*time.Millisecond))
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "another agent") || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	// While it is written to, it looks locked and never damaged.
	var writer sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			s.Commit(t.Context(), store.Put(fmt.Sprintf("objects/kind/default/name-%03d", 100+i%200), nil))
		}
	})
	for range 300 {
		if _, err := Open(path, LockTimeout(0)); !errors.Is(err, store.ErrLocked) {
			t.Errorf("while it is written to: %v", err)
		}
	}
	cancel()
	writer.Wait()
	// It is waited for, for a while.
	opened := make(chan error)
	go func() {
		again, err := Open(path, LockTimeout(time.Minute))
		if err == nil {
			err = again.Close()
		}
		opened <- err
	}()
	commit(t, s, store.Put("a", nil))
	s.Close()
	if err := <-opened; err != nil {
		t.Errorf("after the other closed: %v", err)
	}
}

// Agents that start for the first time together must agree on one file.
func TestConcurrentCreation(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		path := filepath.Join(dir, "store.db")
		const openers = 6
		type result struct {
			s   store.Store
			err error
		}
		results := make(chan result)
		for range openers {
			go func() {
				s, err := Open(path, LockTimeout(0))
				results <- result{s, err}
			}()
		}
		opens := 0
		for range openers {
			if r := <-results; r.err == nil {
				opens++
				t.Cleanup(func() { r.s.Close() })
			} else if !errors.Is(r.err, store.ErrLocked) {
				t.Error(r.err)
			}
		}
		if opens != 1 {
			t.Fatalf("%d have the store open", opens)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Fatalf("%v in the directory, error %v", entries, err)
		}
	}
}

func TestStaleBuildsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	stale, fresh, other := path+newSuffix+"1", path+newSuffix+"2", filepath.Join(dir, "other.db"+newSuffix+"1")
	for _, name := range []string{stale, fresh, other} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chtimes(stale, old, old), os.Chtimes(other, old, old)); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	for name, want := range map[string]bool{stale: false, fresh: true, other: true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}

// A failed write must leave nothing behind, and the store usable.
func TestFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	file, err := openOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := openDB(file, path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	db.MaxSize = 1 << 20
	s := store.Journaled(&journal{db: db, file: file, path: path}, nil, 0, 0)
	commit(t, s, store.Put("a", []byte("1")))
	for range 3 {
		if _, err := s.Commit(t.Context(), store.Put("big", make([]byte, store.MaxValue)), store.Delete("a")); err == nil {
			t.Fatal("it fits")
		}
	}
	if _, err := s.Get(t.Context(), "big"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a failed commit is seen: %v", err)
	}
	commit(t, s, store.Put("b", nil))
	s.Close()
	entries, rev, err := open(t, path).List(t.Context(), "")
	if len(entries) != 2 || rev != 2 || err != nil {
		t.Errorf("%v at %d, error %v", entries, rev, err)
	}
}

// A file that is cut off under a running store must not end the process.
func TestCutOffWhileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	fill(t, path)
	s := open(t, path)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Commit(t.Context(), store.Put("a", nil)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Commit: %v", err)
		}
	}
	if _, err := s.Get(t.Context(), "certs/big"); err != nil {
		t.Errorf("Get: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// What bbolt's own check says must agree with ours for files that we write.
func TestBboltAgrees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	fill(t, path)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error {
		var all []error
		for err := range tx.Check() {
			all = append(all, err)
		}
		return errors.Join(all...)
	}); err != nil {
		t.Error(err)
	}
}

// Commits of several writers share a sync, so they get cheaper together.
func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "store.db"))
			value := make([]byte, 1024)
			var started atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for n := started.Add(1); n <= int64(b.N); n = started.Add(1) {
						if _, err := s.Commit(b.Context(), store.Put(fmt.Sprintf("objects/%d", n%1000), value)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "store.db")
	s := open(b, path)
	for i := range 64 {
		var ops []store.Op
		for k := range 100 {
			ops = append(ops, store.Put(fmt.Sprintf("objects/%d/%d", i, k), make([]byte, 10_000)))
		}
		commit(b, s, ops...)
	}
	s.Close()
	b.SetBytes(64 * 100 * 10_000)
	for b.Loop() {
		s, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
