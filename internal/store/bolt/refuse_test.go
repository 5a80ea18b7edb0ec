package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tryOpen opens a file with the content. A file that is refused must be as it
// was, and the error must name it, be one of the classes and tell what to do.
func tryOpen(t testing.TB, path string, content []byte) (*Store, error) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err == nil {
		return s.(*Store), nil
	}
	if sha256.Sum256(read(t, path)) != sha256.Sum256(content) {
		t.Errorf("the file was changed; error was %v", err)
	}
	known := slices.ContainsFunc([]error{store.ErrCorrupt, store.ErrForeign, store.ErrNewer}, func(class error) bool { return errors.Is(err, class) })
	if !known || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "point to another path") {
		t.Errorf("error %v", err)
	}
	if entries, dirErr := os.ReadDir(filepath.Dir(path)); dirErr != nil || len(entries) != 1 {
		t.Errorf("%v in the directory, error %v", entries, dirErr)
	}
	return nil, err
}

// sound returns the bytes of a good file and its documents.
func sound(t testing.TB) ([]byte, []store.Entry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	fill(t, path)
	content := read(t, path)
	s := open(t, path)
	defer s.Close()
	entries, _, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return content, entries
}

// wantSame fails unless the store holds the documents and takes commits.
func wantSame(t *testing.T, s *Store, want []store.Entry) {
	t.Helper()
	got, _, err := s.List(t.Context(), "")
	if err != nil || !reflect.DeepEqual(got, want) { // cmp is far too slow for this
		t.Errorf("%d documents instead of %d, or other ones; error %v", len(got), len(want), err)
	}
	commit(t, s, store.Put("after", nil))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestForeignFiles(t *testing.T) {
	random := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{}).Read(random)
	for name, c := range map[string]struct {
		content []byte
		found   string
	}{
		"empty":        {nil, "the file is empty"},
		"one byte":     {[]byte("x"), "it is text"},
		"text":         {bytes.Repeat([]byte("listen: 127.0.0.1 # grüße\n"), 1000), "it is text"},
		"sqlite":       {append([]byte("SQLite format 3\x00"), random...), "SQLite"},
		"zeros":        {make([]byte, 65536), "zero bytes"},
		"random":       {random, "not a bbolt file"},
		"short random": {random[:70], "not a bbolt file"},
		"other bbolt":  {otherBolt(t, "sessions", nil), `another program, with "sessions"`},
		"empty bbolt":  {otherBolt(t, "", nil), "another program"},
		"namesake":     {otherBolt(t, aboutName, nil), `with "postern"`},
		"other magic": {otherBolt(t, aboutName, func(b *bbolt.Bucket) error {
			return putSealed(b, magicKey, []byte("something else"))
		}), `for "something else"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tryOpen(t, filepath.Join(t.TempDir(), "store.db"), c.content)
			if s != nil {
				s.Close()
			}
			if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), c.found) {
				t.Errorf("error %v, want it to say %q", err, c.found)
			}
		})
	}
	t.Run("directory", func(t *testing.T) {
		if _, err := Open(t.TempDir()); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), "a directory") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("missing directory", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "missing", "store.db")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("dangling link", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.Symlink("nowhere", path); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil {
			t.Error("it was opened")
		}
	})
}

// otherBolt makes a bbolt file with one bucket, or with none.
func otherBolt(t *testing.T, bucket string, put func(*bbolt.Bucket) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "other.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if bucket != "" {
		err = db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(bucket))
			if err != nil || put == nil {
				return err
			}
			return put(b)
		})
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

// altered returns a good file after changes to the bucket about it.
func altered(t *testing.T, change func(about *bbolt.Bucket) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "altered.db")
	fill(t, path)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte(aboutName))) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

func TestOtherFormats(t *testing.T) {
	for name, c := range map[string]struct {
		change func(about *bbolt.Bucket) error
		want   error
		found  string
	}{
		"next format": {func(b *bbolt.Bucket) error { return putSealed(b, formatKey, encodeFormat(2)) }, store.ErrNewer, "format 2"},
		"next format, all else new": {func(b *bbolt.Bucket) error {
			return errors.Join(putSealed(b, formatKey, encodeFormat(70)), b.Delete([]byte(stateKey)), b.Delete([]byte(instanceKey)))
		}, store.ErrNewer, "format 70"},
		"format 0":       {func(b *bbolt.Bucket) error { return putSealed(b, formatKey, encodeFormat(0)) }, store.ErrCorrupt, "format"},
		"format of text": {func(b *bbolt.Bucket) error { return putSealed(b, formatKey, []byte("one")) }, store.ErrCorrupt, "format"},
		"no format":      {func(b *bbolt.Bucket) error { return b.Delete([]byte(formatKey)) }, store.ErrCorrupt, "format"},
		"no instance":    {func(b *bbolt.Bucket) error { return b.Delete([]byte(instanceKey)) }, store.ErrCorrupt, "instance"},
		"older state":    {func(b *bbolt.Bucket) error { return putSealed(b, stateKey, state{5, 1}.encode()) }, store.ErrCorrupt, "revisions"},
		"other count":    {func(b *bbolt.Bucket) error { return putSealed(b, stateKey, state{500, 1}.encode()) }, store.ErrCorrupt, "instead of 1"},
		"short state":    {func(b *bbolt.Bucket) error { return putSealed(b, stateKey, []byte("7")) }, store.ErrCorrupt, "bytes"},
		"stray bucket": {func(b *bbolt.Bucket) error {
			_, err := b.Tx().CreateBucket([]byte("stray"))
			return err
		}, store.ErrCorrupt, "stray"},
		"no documents": {func(b *bbolt.Bucket) error { return b.Tx().DeleteBucket([]byte(documentsName)) }, store.ErrCorrupt, "missing"},
		"document not ours": {func(b *bbolt.Bucket) error {
			return b.Tx().Bucket([]byte(documentsName)).Put([]byte("a"), []byte("no checksum"))
		}, store.ErrCorrupt, `"a"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tryOpen(t, filepath.Join(t.TempDir(), "store.db"), altered(t, c.change))
			if s != nil {
				s.Close()
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.found) {
				t.Errorf("error %v, want %v and %q", err, c.want, c.found)
			}
		})
	}
	t.Run("next bbolt", func(t *testing.T) {
		content, _ := sound(t)
		for at := range 2 {
			meta := content[at*os.Getpagesize()+headerSize:]
			binary.NativeEndian.PutUint32(meta[4:], metaVersion+1)
			sign(meta)
		}
		if _, err := tryOpen(t, filepath.Join(t.TempDir(), "store.db"), content); !errors.Is(err, store.ErrNewer) {
			t.Errorf("error %v", err)
		}
	})
}

// sign corrects the checksum of a meta page.
func sign(meta []byte) {
	sum := fnv.New64a()
	sum.Write(meta[:metaSize-8])
	binary.NativeEndian.PutUint64(meta[metaSize-8:], sum.Sum64())
}

func TestTruncatedFiles(t *testing.T) {
	content, entries := sound(t)
	m, err := currentMeta(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	needed := int(m.end) * int(m.pageSize)
	page := int(m.pageSize)
	lengths := []int{0, 1, 15, 16, 79, 80, 81, 4095, page, page + 79, page + 80, 2 * page, 3 * page, needed - 1, needed - page, needed, needed + 1, len(content) - 1}
	for range 100 {
		lengths = append(lengths, rand.IntN(len(content)))
	}
	path := filepath.Join(t.TempDir(), "store.db")
	for _, n := range lengths {
		s, err := tryOpen(t, path, content[:n])
		switch {
		case err == nil && n < needed:
			t.Errorf("%d of %d bytes were accepted", n, needed)
			s.Close()
		case err == nil:
			wantSame(t, s, entries) // only room for growth is gone
		case n >= 80 && !errors.Is(err, store.ErrCorrupt):
			t.Errorf("%d bytes: error %v, want ErrCorrupt", n, err)
		case n >= 2*page && !strings.Contains(err.Error(), "it is cut off"):
			t.Errorf("%d bytes: error %v does not say so", n, err)
		}
	}
}

// No single flipped bit may go unnoticed where it matters: the file is refused,
// or holds the very same documents.
func TestFlippedBits(t *testing.T) {
	content, entries := sound(t)
	m, err := currentMeta(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	page := int(m.pageSize)
	path := filepath.Join(t.TempDir(), "store.db")
	refused := 0
	flip := func(bit int, mustRefuse bool) {
		t.Helper()
		content[bit/8] ^= 1 << (bit % 8)
		defer func() { content[bit/8] ^= 1 << (bit % 8) }()
		s, err := tryOpen(t, path, content)
		switch {
		case err != nil:
			refused++
		case mustRefuse:
			t.Errorf("bit %d of byte %d of page %d was accepted", bit%8, bit/8%page, bit/8/page)
			s.Close()
		default:
			wantSame(t, s, entries)
		}
	}
	for _, at := range []int{0, page} {
		for bit := range (headerSize + metaSize) * 8 {
			unused := bit/8 >= 10 && bit/8 < headerSize // count and overflow of a meta page
			flip(at*8+bit, !unused)
		}
	}
	freelist := content[int(m.freelist)*page:]
	free := int(binary.NativeEndian.Uint16(freelist[10:]))
	if free == 0 {
		t.Error("no page is free")
	}
	for bit := range (headerSize + min(free, 10)*8) * 8 {
		flip(int(m.freelist)*page*8+bit, true)
	}
	const random = 400
	before := refused
	for range random {
		flip(rand.IntN(int(m.end)*page*8), false)
	}
	if refused == before {
		t.Error("no flipped bit in the pages was noticed")
	}
	t.Logf("%d of %d flips outside of meta pages refused", refused-before, random)
}

// Pages that are overwritten, swapped or old must not go unnoticed either.
func TestMisplacedPages(t *testing.T) {
	content, entries := sound(t)
	m, err := currentMeta(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	page, end := int(m.pageSize), int(m.end)
	path := filepath.Join(t.TempDir(), "store.db")
	for range 150 {
		damaged := slices.Clone(content)
		target := damaged[rand.IntN(end)*page:][:page]
		switch rand.IntN(3) {
		case 0:
			clear(target)
		case 1:
			copy(target, content[rand.IntN(end)*page:][:page])
		case 2:
			rand.NewChaCha8([32]byte{byte(rand.IntN(256))}).Read(target)
		}
		if s, err := tryOpen(t, path, damaged); err == nil {
			wantSame(t, s, entries)
		}
	}
}

// A meta page from earlier is right in itself, but following it would bring
// back an old state.
func TestOldMetaPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	fill(t, path)
	old := read(t, path)
	s := open(t, path)
	for range 4 {
		commit(t, s, store.Put("a", nil))
	}
	s.Close()
	late, page := read(t, path), os.Getpagesize()
	for at := range 2 {
		content := slices.Clone(late)
		copy(content[at*page:][:page], old[at*page:])
		if s, err := tryOpen(t, path, content); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("meta page %d: error %v", at, err)
			if s != nil {
				s.Close()
			}
		}
	}
}
