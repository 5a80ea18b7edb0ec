package worker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// sealed keeps values of one object in the store, encrypted (C9, P11).
type sealed struct {
	store  store.Store
	sealer registry.Sealer
	folder string
	absent error
}

// nodeState keeps a node's keys. absent is what the node takes for "there is none".
func (s *Set) sealed(folder string, key desired.Key, absent error) *sealed {
	return &sealed{store: s.deps.Store, sealer: s.deps.Sealer, folder: folder + "/" + key.Path() + "/", absent: absent}
}

// path makes a key of the store of a name that may hold anything.
func (k *sealed) path(name string) string {
	return k.folder + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func (k *sealed) Read(ctx context.Context, name string) ([]byte, error) {
	entry, err := k.store.Get(ctx, k.path(name))
	if errors.Is(err, store.ErrNotFound) {
		return nil, k.absent
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", k.path(name), err)
	}
	return k.sealer.Unseal(entry.Key, entry.Value)
}

func (k *sealed) Write(ctx context.Context, name string, value []byte) error {
	op := store.Delete(k.path(name))
	if value != nil {
		op = store.Put(k.path(name), k.sealer.Seal(k.path(name), value))
	}
	if _, err := k.store.Commit(ctx, op); err != nil {
		return fmt.Errorf("writing %s: %w", k.path(name), err)
	}
	return nil
}

// Names lists the names that have a value.
func (k *sealed) Names(ctx context.Context) ([]string, error) {
	entries, _, err := k.store.List(ctx, k.folder)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", k.folder, err)
	}
	var names []string
	for _, entry := range entries {
		name, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(entry.Key, k.folder))
		if err != nil {
			return nil, fmt.Errorf("store key %q: %w", entry.Key, err)
		}
		names = append(names, string(name))
	}
	return names, nil
}

// Clear forgets every value.
func (k *sealed) Clear(ctx context.Context) error {
	entries, _, err := k.store.List(ctx, k.folder)
	if err != nil {
		return fmt.Errorf("listing %s: %w", k.folder, err)
	}
	ops := make([]store.Op, 0, len(entries))
	for _, entry := range entries {
		ops = append(ops, store.Delete(entry.Key))
	}
	if _, err := k.store.Commit(ctx, ops...); err != nil {
		return fmt.Errorf("clearing %s: %w", k.folder, err)
	}
	return nil
}
