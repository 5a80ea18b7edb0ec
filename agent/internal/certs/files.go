package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// CAFromFiles reads a CA from two files, and makes both on first use where create asks for it. It never overwrites (C6): one
// file without the other is an error.
func CAFromFiles(certFile, keyFile string, create bool, now time.Time) (*CA, error) {
	certPEM, certErr := os.ReadFile(certFile)
	keyPEM, keyErr := os.ReadFile(keyFile)
	noCert, noKey := errors.Is(certErr, fs.ErrNotExist), errors.Is(keyErr, fs.ErrNotExist)
	switch {
	case certErr != nil && !noCert:
		return nil, fmt.Errorf("certificate_file: %w", certErr)
	case keyErr != nil && !noKey:
		return nil, fmt.Errorf("key_file: %w", keyErr)
	case noCert && noKey && create:
		var err error
		if certPEM, keyPEM, err = createFiles(certFile, keyFile, now); err != nil {
			return nil, err
		}
	case noCert && noKey:
		return nil, fmt.Errorf("certificate_file %s and key_file %s are not there; put the CA's files there, or set create = true", certFile, keyFile)
	case noCert && create:
		return nil, fmt.Errorf("key_file %s is there and certificate_file %s is not; restore the certificate, "+
			"or remove the key to have both made anew: a CA that was being made when the agent ended leaves its key", keyFile, certFile)
	case noCert:
		return nil, fmt.Errorf("key_file %s is there and certificate_file %s is not; put both there, or neither", keyFile, certFile)
	case noKey:
		return nil, fmt.Errorf("certificate_file %s is there and key_file %s is not; put both there, or neither", certFile, keyFile)
	}
	return LoadCA(certPEM, keyPEM)
}

// createFiles writes the key before the certificate, each whole or not at all.
func createFiles(certFile, keyFile string, now time.Time) (certPEM, keyPEM []byte, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("naming the CA: %w", err)
	}
	if certPEM, keyPEM, err = CreateCA("Postern CA on "+host, now); err != nil {
		return nil, nil, err
	}
	if err := writeNew(keyFile, keyPEM, 0o600); err != nil {
		return nil, nil, fmt.Errorf("writing the CA's key: %w", err)
	}
	if err := writeNew(certFile, certPEM, 0o644); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("writing the CA's certificate: %w", err), os.Remove(keyFile))
	}
	return certPEM, keyPEM, nil
}

// writeNew writes a file that must not exist yet, and that is there whole or not at all.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // after the link it is only a second name
	_, err = file.Write(text)
	if err := errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil { // unlike a rename, it never overwrites
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
