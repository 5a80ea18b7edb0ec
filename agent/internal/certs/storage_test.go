package certs

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

var errFull = errors.New("the disk is full")

// unreadable is a shelf that cannot be read.
type unreadable struct{ *shelf }

func (unreadable) Read(context.Context, string) ([]byte, error) { return nil, errFull }

// nameless is a shelf that cannot be listed.
type nameless struct{ *shelf }

func (nameless) Names(context.Context) ([]string, error) { return nil, errFull }

// What cannot be stored would be lost with the process, and another issued each time: it is not served.
func TestWhatCannotBeStoredIsNotServed(t *testing.T) {
	storage := newShelf()
	storage.fail = errFull
	m := NewManager(storage, issuers{"apps": newCA(t, time.Now())}.find)
	results, next := m.Reconcile(t.Context(), []Request{request("a", "a.internal")})
	if r := results["a"]; r.Pair != nil || !errors.Is(r.Err, errFull) || !strings.Contains(r.Err.Error(), "storing the certificate a") {
		t.Errorf("%+v", r)
	}
	if wait := time.Until(next); wait <= 0 || wait > time.Minute {
		t.Errorf("it is tried again in %s", wait)
	}
	storage.fail = nil
	one(t, m, request("a", "a.internal"))
}

// A store that cannot be read may hold a good pair: none is issued over it.
func TestWhatCannotBeReadIsNotIssuedOver(t *testing.T) {
	storage := newShelf()
	m := NewManager(unreadable{storage}, issuers{"apps": newCA(t, time.Now())}.find)
	results, _ := m.Reconcile(t.Context(), []Request{request("a", "a.internal")})
	if r := results["a"]; r.Pair != nil || !errors.Is(r.Err, errFull) || !strings.Contains(r.Err.Error(), "reading the certificate a") {
		t.Errorf("%+v", r)
	}
	if len(storage.values) != 0 {
		t.Errorf("something was stored: %v", storage.values)
	}
}

// What nobody asks for goes as soon as the store lets it.
func TestForgettingIsTriedAgain(t *testing.T) {
	storage := newShelf()
	find := issuers{"apps": newCA(t, time.Now())}.find
	m := NewManager(storage, find)
	one(t, m, request("a", "a.internal"))
	storage.fail = errFull
	m.Reconcile(t.Context(), nil)
	if len(storage.values) != 1 {
		t.Fatal("it went although the store refused")
	}
	storage.fail = nil
	if m.Reconcile(t.Context(), nil); len(storage.values) != 0 {
		t.Fatal("it is still there")
	}
	m = NewManager(nameless{storage}, find)
	one(t, m, request("a", "a.internal"))
	if results, _ := m.Reconcile(t.Context(), []Request{request("b", "b.internal")}); results["b"].Err != nil || len(storage.values) != 2 {
		t.Errorf("a store that cannot be listed: %+v, kept %d", results["b"], len(storage.values))
	}
}

// A CA whose files cannot be made leaves nothing behind, so that the next attempt is not told of half a CA (C6).
func TestACAThatCannotBeMadeLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	nowhere := dir + "/link" // nothing is there to read, and no folder can be made there
	if err := os.Symlink(dir+"/gone", nowhere); err != nil {
		t.Fatal(err)
	}
	key := dir + "/ca.key"
	if _, err := CAFromFiles(nowhere+"/ca.pem", key, true, time.Now()); err == nil || !strings.Contains(err.Error(), "writing the CA's certificate") {
		t.Fatalf("a certificate was written nowhere: %v", err)
	}
	if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key was left: %v", err)
	}
	if _, err := CAFromFiles(dir, key, true, time.Now()); err == nil || !strings.Contains(err.Error(), "certificate_file") {
		t.Errorf("a folder in place of the certificate: %v", err)
	}
	if _, err := CAFromFiles(dir+"/ca.pem", dir, true, time.Now()); err == nil || !strings.Contains(err.Error(), "key_file") {
		t.Errorf("a folder in place of the key: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v %v", entries, err)
	}
}
