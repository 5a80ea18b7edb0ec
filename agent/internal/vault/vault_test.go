package vault

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, path string) *Vault {
	t.Helper()
	v, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSealedValuesOutliveTheProcessAndBelongToTheirName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "postern.key")
	first := open(t, path)
	sealed := first.Seal("nodes/a", []byte("secret"))
	if bytes.Contains(sealed, []byte("secret")) {
		t.Fatal("the value is in the clear")
	}
	again := open(t, path)
	if got, err := again.Unseal("nodes/a", sealed); err != nil || string(got) != "secret" {
		t.Fatalf("%q %v", got, err)
	}
	if _, err := again.Unseal("nodes/b", sealed); !errors.Is(err, ErrCorrupt) || !errors.Is(err, ErrUnreadable) {
		t.Fatalf("under another name: %v", err)
	}
	other := open(t, filepath.Join(t.TempDir(), "postern.key"))
	if _, err := other.Unseal("nodes/a", sealed); !errors.Is(err, ErrWrongKey) || !strings.Contains(err.Error(), "nodes/a") {
		t.Fatalf("with another key: %v", err)
	}
	for i := range sealed {
		bent := bytes.Clone(sealed)
		bent[i] ^= 1
		if _, err := again.Unseal("nodes/a", bent); !errors.Is(err, ErrUnreadable) {
			t.Fatalf("with byte %d changed: %v", i, err)
		}
		if _, err := again.Unseal("nodes/a", sealed[:i]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("with %d bytes: %v", i, err)
		}
	}
	if bytes.Equal(sealed, first.Seal("nodes/a", []byte("secret"))) {
		t.Fatal("two seals of one value are equal, so a nonce was used twice")
	}
}

func TestKeyFileIsPrivateAndMadeOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "postern.key")
	sealed := make(chan []byte, 8)
	for range cap(sealed) { // as many processes, at once
		go func() {
			v, err := Open(path)
			if err != nil {
				t.Error(err)
				sealed <- nil
				return
			}
			sealed <- v.Seal("a", []byte("x"))
		}()
	}
	v := open(t, path)
	for range cap(sealed) {
		if _, err := v.Unseal("a", <-sealed); err != nil {
			t.Errorf("two keys were made: %v", err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	if _, err := Open(filepath.Join(dir, "missing", "postern.key")); err == nil {
		t.Error("a key in a folder that is not there")
	}
}

func TestKeyFilesThatAreRefusedStayAsTheyAre(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"readable": {header + strings.Repeat("A", 43) + "=", 0o644, "chmod 600"},
		"empty":    {"", 0o600, "no key of ours"},
		"foreign":  {"-----BEGIN PRIVATE KEY-----", 0o600, "no key of ours"},
		"short":    {header + "AAAA", 0o600, "no key of ours"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "postern.key")
			if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != c.text {
				t.Fatalf("the file was changed: %q %v", text, err)
			}
		})
	}
}

func FuzzUnseal(f *testing.F) {
	v, err := Open(filepath.Join(f.TempDir(), "postern.key"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, []byte("x"))
	f.Add([]byte{1}, []byte("x"))
	f.Fuzz(func(t *testing.T, garbage, value []byte) {
		if _, err := v.Unseal("n", garbage); !errors.Is(err, ErrUnreadable) {
			t.Fatalf("garbage unseals: %v", err)
		}
		if got, err := v.Unseal("n", v.Seal("n", value)); err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%q became %q: %v", value, got, err)
		}
	})
}
