// Package store keeps documents: small values under slash-separated keys, each
// with the revision of its last change. The interface asks for no more than
// etcd can give, so a local file, memory and a cluster are interchangeable.
//
// There is no transaction that reads and writes in one go: read, then commit
// with guards, and read again on a conflict. There is no lease and no expiry.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Limits of one commit. They are those of etcd with its default settings,
// which takes at most 128 operations and 1.5 MiB in one request.
const (
	MaxOps    = 128         // operations in one commit
	MaxKey    = 1024        // bytes of one key
	MaxValue  = 1 << 20     // bytes of one value
	MaxCommit = 5 * 1 << 18 // bytes of all keys and values in one commit, 1.25 MiB
)

// Errors of every store. Test for them with errors.Is.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("no such document")
	// ErrConflict: a guard does not hold. The error is a *ConflictError.
	ErrConflict = errors.New("document was changed by someone else")
	// ErrCompacted: the commits asked for are forgotten. List again, then
	// watch from the revision of that list.
	ErrCompacted = errors.New("history is gone")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrTooLarge: a limit of one commit is exceeded.
	ErrTooLarge = errors.New("commit is too large")
	// ErrInvalid: a key or a set of operations that no store accepts.
	ErrInvalid = errors.New("invalid operation")

	// ErrCorrupt: what is stored is damaged. Nothing was changed.
	ErrCorrupt = errors.New("damaged store")
	// ErrForeign: what is stored is not ours. Nothing was changed.
	ErrForeign = errors.New("not a store of this program")
	// ErrNewer: a newer release wrote it in a form unknown here. Nothing was
	// changed.
	ErrNewer = errors.New("store of a newer release")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("store is in use")
)

// ConflictError says which guard did not hold. errors.Is(err, ErrConflict)
// is true for it.
type ConflictError struct {
	Key  string
	Have Revision // Modified of the present document, 0 when there is none
}

func (e *ConflictError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("%s: %v: it is absent", e.Key, ErrConflict)
	}
	return fmt.Sprintf("%s: %v: it is at revision %d", e.Key, ErrConflict, e.Have)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// Revision numbers the commits of a store. It grows with every commit that
// changes something and is never reused, also not after a restart; it may grow
// by more than one. 0 is the revision before the first commit.
type Revision int64

// Entry is a document as it is stored.
type Entry struct {
	Key      string
	Value    []byte   // never nil for a present document, may be empty
	Created  Revision // of the commit that made the key; a key made again after a deletion gets a new one
	Modified Revision // of the commit that wrote this value
}

// Batch is what one commit changed.
type Batch struct {
	Revision Revision
	Events   []Event // sorted by key, each key once
}

// Event is one changed document. Of a deleted one the entry has only the key
// and, as Modified, the revision of the deletion.
type Event struct {
	Entry   Entry
	Deleted bool
}

// Store keeps documents. This comment and those of the methods are the
// specification that package storetest checks.
//
// Keys: segments of printable ASCII joined by single slashes, none of them
// empty, so no slash at either end; at most MaxKey bytes; case matters. A
// prefix is any string and is compared byte by byte: to mean a folder, end it
// with a slash. The empty prefix is everything.
//
// Absence: Get answers ErrNotFound, a list leaves the key out, a guard sees
// revision 0. An empty value is a document and not absence.
//
// Concurrency: all methods may be called from any number of goroutines.
// Commits are serial. A read sees every commit that returned before the read
// began, and never one that could still be lost.
//
// Ownership: the caller owns every slice it is given and may change it. Slices
// passed to Commit may be changed once Commit has returned.
//
// Contexts: one that ends while Commit waits gives its error, and the commit
// may have happened or not: read to find out.
//
// After Close every method answers ErrClosed, except Close.
type Store interface {
	// Get returns one document, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)

	// List returns the documents under a prefix, sorted by key, all as they
	// were at the one revision returned. Watching from that revision misses
	// nothing.
	List(ctx context.Context, prefix string) ([]Entry, Revision, error)

	// Commit applies the operations all or none, and returns when they are
	// durable. Guards see the state before the commit. Each key may occur once.
	//
	// A commit that changes nothing (no operation, only checks, deletions of
	// absent keys) makes no revision; it still checks its guards and returns
	// the current revision. A put of the value that is there is a change.
	//
	// Errors: *ConflictError for the first guard in order that does not hold;
	// ErrTooLarge and ErrInvalid as Validate gives them. None of these writes
	// anything. After another error the commit may have happened or not.
	Commit(ctx context.Context, ops ...Op) (Revision, error)

	// Watch delivers every commit after a revision that touched the prefix,
	// in order and without a gap, each with its events under the prefix. It
	// answers ErrCompacted when some of these commits are already forgotten.
	//
	// The channel closes when the context ends, when the store closes, and
	// when the reader is so late that commits it still needs are forgotten;
	// then the reader lists again. It must be read, or the context ended, for
	// the store to let go of it.
	Watch(ctx context.Context, prefix string, after Revision) (<-chan Batch, error)

	// Close waits for running commits, closes the channels of all watches and
	// releases the store. Closing twice is allowed.
	Close() error
}

// ValidateKey reports, as ErrInvalid or ErrTooLarge, what is wrong with a key.
func ValidateKey(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("key of %d bytes, at most %d are allowed: %w", len(key), MaxKey, ErrTooLarge)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" {
			return fmt.Errorf("key %q has an empty segment: %w", key, ErrInvalid)
		}
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return fmt.Errorf("key %q has a byte that is not printable ASCII: %w", key, ErrInvalid)
		}
	}
	return nil
}
