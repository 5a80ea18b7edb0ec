// Package vault encrypts what lies in the store and is secret: node keys, private keys of certificates, credentials (C9).
// The key is a file beside the store. There is no rotation and no passphrase: who can read the agent's folder as the agent
// does can read everything in it.
package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Why a value does not unseal. Both are ErrUnreadable.
var (
	ErrUnreadable = errors.New("the value cannot be read")
	ErrWrongKey   = fmt.Errorf("%w: it was sealed with another key, so the key file belongs to another store; "+
		"put the right postern.key beside postern.db", ErrUnreadable)
	ErrCorrupt = fmt.Errorf("%w: it is damaged, or was moved here from under another name; restore the store from a backup", ErrUnreadable)
)

const (
	keyBytes = 32
	// header starts a key file, so that nothing else is taken for one.
	header = "postern-key-1 "
	// format is the first byte of what is sealed. The key's mark, the nonce and the ciphertext follow.
	format    = 1
	markBytes = 8
)

// Vault seals values with one key. It is safe for concurrent use.
type Vault struct {
	aead cipher.AEAD
	// mark tells keys apart, so that a wrong key is not taken for damage. It gives nothing of the key away.
	mark [markBytes]byte
}

// Open reads the key file, or makes it where there is none. A file that others may read is refused.
func Open(path string) (*Vault, error) {
	key, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = create(path)
		if errors.Is(err, fs.ErrExist) { // another process made it meanwhile
			key, err = read(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	sum := sha256.Sum256(append([]byte("postern key mark"), key...))
	return &Vault{aead: aead, mark: [markBytes]byte(sum[:markBytes])}, nil
}

func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("its permissions are %04o, and nobody but the agent may read it; run chmod 600", mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(text)), header)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) != keyBytes {
		return nil, errors.New("it is no key of ours; restore it from a backup, or move it and the store away to start anew")
	}
	return key, nil
}

// create makes a key that is there whole or not at all, also after a power cut.
func create(path string) ([]byte, error) {
	key := make([]byte, keyBytes)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, ".key-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name()) // it is gone after the link, or of no use
	_, err = file.WriteString(header + base64.StdEncoding.EncodeToString(key) + "\n")
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return nil, err
	}
	if err := os.Link(file.Name(), path); err != nil { // unlike a rename, it never replaces a key
		return nil, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return key, errors.Join(folder.Sync(), folder.Close())
}

// Seal encrypts a value and binds it to a name.
func (v *Vault) Seal(name string, plaintext []byte) []byte {
	head := 1 + markBytes + v.aead.NonceSize()
	sealed := make([]byte, head, head+len(plaintext)+v.aead.Overhead())
	sealed[0] = format
	copy(sealed[1:], v.mark[:])
	nonce := sealed[1+markBytes:]
	_, _ = rand.Read(nonce) // it never fails, by its documentation
	return v.aead.Seal(sealed, nonce, plaintext, bound(name, sealed[:1+markBytes]))
}

// bound is what a value is bound to: its name, and its own head.
func bound(name string, head []byte) []byte { return append(slices.Clone(head), name...) }

// Unseal gives the value that was sealed under name (ErrWrongKey, ErrCorrupt).
func (v *Vault) Unseal(name string, sealed []byte) ([]byte, error) {
	head := 1 + markBytes + v.aead.NonceSize()
	if len(sealed) < head+v.aead.Overhead() || sealed[0] != format {
		return nil, fmt.Errorf("unsealing %s: %w", name, ErrCorrupt)
	}
	if !bytes.Equal(sealed[1:1+markBytes], v.mark[:]) {
		return nil, fmt.Errorf("unsealing %s: %w", name, ErrWrongKey)
	}
	plain, err := v.aead.Open(nil, sealed[1+markBytes:head], sealed[head:], bound(name, sealed[:1+markBytes]))
	if err != nil {
		return nil, fmt.Errorf("unsealing %s: %w", name, ErrCorrupt)
	}
	return plain, nil
}
