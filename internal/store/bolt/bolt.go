// Package bolt keeps a store in one bbolt file.
//
// All documents are in memory as well: reads never touch the file, so they see
// nothing that is not yet durable, and a file damaged while the store is open
// cannot take the process down. The file is read, checked page by page and
// only then given to bbolt, which trusts what it maps.
package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// Store is a store in a file. Open makes it.
type Store struct {
	store.Store
	instance string
}

var _ store.Store = (*Store)(nil)

// Instance returns the random identity of the file: 32 hexadecimal digits, the
// same for the life of the file and of its copies. Revisions of stores with
// different instances have nothing to do with each other.
func (s *Store) Instance() string { return s.instance }

// Option changes how Open works.
type Option func(*options)

type options struct {
	history     int
	lockTimeout time.Duration
}

// History sets how many commits are remembered for watches. The default is
// store.DefaultHistory. Nothing is remembered over a restart.
func History(commits int) Option { return func(o *options) { o.history = commits } }

// LockTimeout sets how long Open waits for another process to let go of the
// file. The default is one second, which is enough for a restart to overlap.
func LockTimeout(d time.Duration) Option { return func(o *options) { o.lockTimeout = d } }

// Open opens the store at a path, or creates it there, readable by its owner
// only, when there is nothing. The directory must exist. What is returned
// without an error is a *Store.
//
// Errors: store.ErrLocked when it is open elsewhere; store.ErrCorrupt,
// store.ErrForeign and store.ErrNewer for a file that is not a whole store of
// this program. Such a file is left as it is, byte for byte. A file of 0 bytes
// is foreign: this package never leaves one behind, so someone else did, and
// what was in it may be worth looking for.
//
// A file with one bad meta page is refused too, although bbolt would go back to
// the other one. A meta page is valid within the first sector, which disks
// write as a whole, so this is not the trace of a power loss; and going back
// drops a commit that was answered as durable and gives its revision away
// again.
func Open(path string, opts ...Option) (store.Store, error) {
	o := options{lockTimeout: time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	file, err := openOrCreate(path)
	if err != nil {
		return nil, err
	}
	s, err := openFile(file, path, o)
	if err != nil {
		file.Close() // a second time when bbolt had it, which is harmless
		return nil, err
	}
	return s, nil
}

// openOrCreate opens a regular file, which it makes when the path is free.
func openOrCreate(path string) (*os.File, error) {
	// A second round only when another process removes or adds the file
	// meanwhile.
	for range 3 {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			if err := create(path); err != nil {
				return nil, fmt.Errorf("creating store file %q: %w", path, err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening store file: %w", err)
		}
		if !info.Mode().IsRegular() {
			return nil, refuse(path, store.ErrForeign, "it is not a regular file but "+kindOf(info.Mode()))
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening store file: %w", err)
		}
		return file, nil
	}
	return nil, fmt.Errorf("opening store file %q: it comes and goes", path)
}

// openFile locks and checks the file before bbolt may write to it.
func openFile(file *os.File, path string, o options) (*Store, error) {
	if err := lock(file, o.lockTimeout); err != nil {
		return nil, lockError(path, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading store file: %w", err)
	}
	found, err := load(file, info.Size())
	if err != nil {
		return nil, refuseErr(path, err)
	}
	db, err := openDB(file, path, o.lockTimeout)
	if err != nil {
		return nil, err
	}
	j := &journal{db: db, file: file, path: path, state: found.state}
	return &Store{
		Store:    store.Journaled(j, found.entries, found.state.revision, o.history),
		instance: found.instance,
	}, nil
}

// openDB hands bbolt the file that is already locked and checked, so that no
// other process gets in between.
func openDB(file *os.File, path string, timeout time.Duration) (db *bbolt.DB, err error) {
	defer func() {
		if damage := recover(); damage != nil {
			err = refuse(path, store.ErrCorrupt, fmt.Sprint(damage))
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      max(timeout, time.Millisecond), // 0 would wait for ever
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return file, nil },
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, lockError(path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening store file %q: %w", path, err)
	}
	return db, nil
}
