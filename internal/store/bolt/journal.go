package bolt

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// journal writes batches to the file, one transaction for each Append.
type journal struct {
	db    *bbolt.DB
	file  *os.File // the one that db uses
	path  string
	state state // as it is in the file

	broken error // or nil; every later Append answers it
	stuck  bool  // a transaction can no longer be ended, so db cannot be closed
}

var _ store.Journal = (*journal)(nil)

func (j *journal) Append(batches []store.Batch) (err error) {
	if j.broken != nil {
		return j.broken
	}
	// bbolt maps the file: if someone cuts it off while it is open, reading it
	// raises a fault, which without this would end the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if damage := recover(); damage != nil {
			j.stuck = true
			j.broken = fmt.Errorf("store file %q: %w: it was changed while in use: %v; stop the agent and restore a backup", j.path, store.ErrCorrupt, damage)
			err = j.broken
		}
	}()
	next := j.state.after(batches)
	err = j.db.Update(func(tx *bbolt.Tx) error { return j.put(tx, batches, next) })
	if err == nil {
		j.state = next
		return nil
	}
	err = fmt.Errorf("store file %q: %w", j.path, err)
	j.broken = j.doubt(err)
	return err
}

func (j *journal) put(tx *bbolt.Tx, batches []store.Batch, next state) error {
	about, documents := tx.Bucket([]byte(aboutName)), tx.Bucket([]byte(documentsName))
	for _, b := range batches {
		for _, ev := range b.Events {
			var err error
			if ev.Deleted {
				err = documents.Delete([]byte(ev.Entry.Key))
			} else {
				err = putSealed(documents, ev.Entry.Key, encodeEntry(ev.Entry))
			}
			if err != nil {
				return err
			}
		}
	}
	return putSealed(about, stateKey, next.encode())
}

// doubt returns nil when a failed transaction left the state as it was, so that
// a disk that was full can be used again once there is room. Otherwise the meta
// page was written but perhaps not synced, and only a restart can tell.
func (j *journal) doubt(cause error) error {
	var inFile state
	err := j.db.View(func(tx *bbolt.Tx) error {
		body, err := unseal(stateKey, tx.Bucket([]byte(aboutName)).Get([]byte(stateKey)))
		if err != nil {
			return err
		}
		inFile, err = decodeState(body)
		return err
	})
	if err == nil && inFile == j.state {
		return nil
	}
	return fmt.Errorf("outcome of an earlier write is unknown, restart the agent: %w", errors.Join(cause, err))
}

func (j *journal) Close() error {
	if j.stuck {
		return j.file.Close() // releases the lock; the mapping stays until the process ends
	}
	return j.db.Close()
}
