package bolt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// small returns the bytes of a file with few pages, but all sorts of them.
func small(f *testing.F) []byte {
	path := filepath.Join(f.TempDir(), "seed.db")
	s := open(f, path)
	for i := range 30 {
		commit(f, s, store.Put(strings.Repeat("k", i+1), make([]byte, i*20)))
	}
	commit(f, s, store.Put("big", make([]byte, 9000)), store.Delete("kkk"))
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	return read(f, path)
}

// openAny fails when Open crashes, changes a file that it refuses, or accepts
// one that does not work.
func openAny(t *testing.T, content []byte) {
	s, err := tryOpen(t, filepath.Join(t.TempDir(), "store.db"), content)
	if err != nil {
		return
	}
	entries, _, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, s, entries)
}

// FuzzOpen opens arbitrary bytes.
func FuzzOpen(f *testing.F) {
	content := small(f)
	for _, n := range []int{0, 1, 80, 5000, len(content) / 2, len(content)} {
		f.Add(content[:n])
	}
	f.Add([]byte("SQLite format 3\x00"))
	f.Add([]byte("listen: 127.0.0.1\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<20 {
			t.Skip("bigger files only take longer")
		}
		openAny(t, content)
	})
}

// FuzzOpenPatched opens a good file in which bytes of one page were replaced.
// The meta pages get right checksums, so that what they lead to is reached.
func FuzzOpenPatched(f *testing.F) {
	good := small(f)
	page := os.Getpagesize()
	for id := range len(good) / page {
		f.Add(uint16(id), uint16(0), []byte{byte(id), 0, 0, 0, 0, 0, 0, 0, 1})
		f.Add(uint16(id), uint16(headerSize), []byte{16, 0, 0, 0, 255, 255})
	}
	f.Fuzz(func(t *testing.T, id, at uint16, patch []byte) {
		content := slices.Clone(good)
		from := int(id)*page + int(at)%page
		if from >= len(content) {
			return
		}
		copy(content[from:], patch)
		sign(content[headerSize:])
		sign(content[page+headerSize:])
		openAny(t, content)
	})
}
