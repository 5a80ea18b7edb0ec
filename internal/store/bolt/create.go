package bolt

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// newSuffix marks files under construction. They lie beside the store, because
// only there a link to them can be made.
const newSuffix = ".new-"

// create puts an empty store at a free path, whole or not at all: it is built
// under another name, made durable, then linked to the path. A link, unlike a
// rename, does not replace a store that another process made meanwhile; losing
// that race is no error.
func create(path string) error {
	dir := filepath.Dir(path)
	removeStale(path)
	file, err := os.CreateTemp(dir, filepath.Base(path)+newSuffix)
	if err != nil {
		return err
	}
	name := file.Name()
	defer os.Remove(name)
	if err := file.Close(); err != nil {
		return err
	}
	if err := build(name); err != nil {
		return err
	}
	if err := place(name, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// build fills an empty file. bbolt syncs it.
func build(name string) error {
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{Timeout: time.Second, NoStatistics: true})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket([]byte(documentsName)); err != nil {
			return err
		}
		about, err := tx.CreateBucket([]byte(aboutName))
		if err != nil {
			return err
		}
		var instance [16]byte
		rand.Read(instance[:])
		return errors.Join(
			putSealed(about, magicKey, []byte(magic)),
			putSealed(about, formatKey, encodeFormat(formatVersion)),
			putSealed(about, instanceKey, []byte(hex.EncodeToString(instance[:]))),
			putSealed(about, stateKey, state{}.encode()),
		)
	})
	return errors.Join(err, db.Close())
}

// place gives a finished file its name.
func place(name, path string) error {
	err := os.Link(name, path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	// The file system may have no links. There, two agents that start for the
	// first time in the same instant are not kept apart.
	if _, statErr := os.Lstat(path); !errors.Is(statErr, fs.ErrNotExist) {
		return statErr
	}
	if renameErr := os.Rename(name, path); renameErr != nil {
		return errors.Join(err, renameErr)
	}
	return nil
}

// removeStale deletes what killed processes left. Building takes milliseconds,
// so what is a minute old has no builder any more. Leftovers do no harm:
// errors are ignored.
func removeStale(path string) {
	dir := filepath.Dir(path)
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), filepath.Base(path)+newSuffix) {
			continue
		}
		if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
			os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there, and need not be
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
