package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// finding is what makes a file unusable: one of the sentinels of package store
// and what was found.
type finding struct {
	class error
	found string
}

func (f *finding) Error() string { return f.class.Error() + ": " + f.found }
func (f *finding) Unwrap() error { return f.class }

func damaged(format string, args ...any) error {
	return &finding{store.ErrCorrupt, fmt.Sprintf(format, args...)}
}

func foreign(format string, args ...any) error {
	return &finding{store.ErrForeign, fmt.Sprintf(format, args...)}
}

func newer(format string, args ...any) error {
	return &finding{store.ErrNewer, fmt.Sprintf(format, args...)}
}

// refuseErr tells the user about a finding, or passes on another error.
func refuseErr(path string, err error) error {
	var f *finding
	if errors.As(err, &f) {
		return refuse(path, f.class, f.found)
	}
	return fmt.Errorf("reading store file %q: %w", path, err)
}

// refuse names the file, what was found and the ways out.
func refuse(path string, class error, found string) error {
	remedy := "restore a backup to this path, or point to another path for an empty store"
	switch {
	case errors.Is(class, store.ErrForeign):
		remedy = "point to another path"
	case errors.Is(class, store.ErrNewer):
		remedy = "run that release, restore a backup from before the upgrade, or point to another path"
	}
	return fmt.Errorf("store file %q: %w: %s; the file was not changed: %s", path, class, found, remedy)
}

func lockError(path string, err error) error {
	if !errors.Is(err, berrors.ErrTimeout) {
		return fmt.Errorf("locking store file %q: %w", path, err)
	}
	return fmt.Errorf("store file %q: %w: another agent runs with it; stop that agent, or point this one to another path", path, store.ErrLocked)
}

// looksLike names the content of a file that is not a bbolt file.
func looksLike(head []byte) string {
	switch {
	case len(head) == 0:
		return "the file is empty"
	case bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return "it is an SQLite database"
	case len(bytes.Trim(head, "\x00")) == 0:
		return "it holds only zero bytes"
	case isText(head):
		return "it is text"
	}
	return "it is not a bbolt file"
}

func isText(head []byte) bool {
	// The last bytes may be the start of a longer character.
	for n := len(head); len(head) > 0 && len(head) > n-utf8.UTFMax && !utf8.Valid(head); {
		head = head[:len(head)-1]
	}
	return len(head) > 0 && utf8.Valid(head) && bytes.IndexFunc(head, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\r' && r != '\t'
	}) < 0
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	}
	return "a device"
}
