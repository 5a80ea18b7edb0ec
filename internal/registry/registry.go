// Package registry keeps declared objects in a store: each with its spec, its secrets and what was observed of it, and with
// the claims that follow from all of them. It is where a declaration is judged and where it becomes durable; the API, the
// agent's workers and tests meet here..
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// The folders of the store that the registry owns.
const (
	objects = "objects/"
	status  = "status/"
	secrets = "secrets/"
	claims  = "claims/"
)

// Sealer encrypts what is kept secret at rest (C9). The name is bound to the text: what was sealed under one name does not
// unseal under another.
type Sealer interface {
	Seal(name string, plaintext []byte) []byte
	Unseal(name string, sealed []byte) ([]byte, error)
}

// Prober asks a tailnet's control plane what it can do, for a dry run. It only reads.
type Prober func(ctx context.Context, t *desired.Tailnet, apiKey string) blueprint.Facts

// Registry keeps the objects of one store. It is safe for concurrent use.
type Registry struct {
	store  store.Store
	sealer Sealer
	prober Prober

	// writing serialises the judging and committing of declarations in this process. Other processes are kept out by guards.
	writing sync.Mutex

	mu sync.Mutex
	// mu guards following
	state *state
	view  *View
}

// New makes a registry. A nil prober leaves dry runs of tailnets without facts.
func New(s store.Store, sealer Sealer, prober Prober) *Registry {
	return &Registry{store: s, sealer: sealer, prober: prober}
}

// record is an object as it is stored.
type record struct {
	Spec      json.RawMessage `json:"spec"`
	Workspace string          `json:"workspace,omitzero"`
	Deleting  bool            `json:"deleting,omitzero"`
	Released  bool            `json:"released,omitzero"`
}

func objectKey(key desired.Key) string { return objects + key.Path() }
func statusKey(key desired.Key) string { return status + key.Path() }
func secretKey(key desired.Key, name string) string {
	return secrets + key.Path() + "/" + name
}
func claimsKey(tailnet string) string { return claims + tailnet }

// keyOf reads an object's key from its key in the store.
func keyOf(stored, folder string) (desired.Key, error) {
	parts := strings.Split(strings.TrimPrefix(stored, folder), "/")
	if len(parts) != 3 {
		return desired.Key{}, fmt.Errorf("store key %q: it is not of the form kind/namespace/name", stored)
	}
	return desired.ParseKey(desired.Kind(parts[0]), parts[1], parts[2])
}

// Secret reads a secret of an object (api.ErrNotFound).
func (r *Registry) Secret(ctx context.Context, key desired.Key, name string) (string, error) {
	entry, err := r.store.Get(ctx, secretKey(key, name))
	if errors.Is(err, store.ErrNotFound) {
		return "", &api.Error{Kind: api.ErrNotFound, Message: fmt.Sprintf("%s has no secret %s; apply it again with a higher version", key, name)}
	}
	if err != nil {
		return "", fmt.Errorf("reading the secret %s of %s: %w", name, key, err)
	}
	plain, err := r.sealer.Unseal(entry.Key, entry.Value)
	if err != nil {
		return "", fmt.Errorf("reading the secret %s of %s: %w", name, key, err)
	}
	return string(plain), nil
}

// SetStatus records what was observed of an object at a revision. It is api.ErrConflict when the object has moved on, and
// then the observer looks again. It never changes the object's revision.
func (r *Registry) SetStatus(ctx context.Context, key desired.Key, revision int64, s api.Status) error {
	value, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding the status of %s: %w", key, err)
	}
	_, err = r.store.Commit(ctx,
		store.Check(objectKey(key), store.IfRevision(store.Revision(revision))),
		store.Put(statusKey(key), value))
	if errors.Is(err, store.ErrConflict) {
		return &api.Error{Kind: api.ErrConflict, Message: fmt.Sprintf("%s has changed since it was observed", key)}
	}
	if err != nil {
		return fmt.Errorf("recording the status of %s: %w", key, err)
	}
	return nil
}

// Changes gives a level trigger: it fires after objects or what was observed of them changed, at least once for any number
// of changes, until ctx ends. Read the view to learn what is there.
func (r *Registry) Changes(ctx context.Context) (<-chan struct{}, error) {
	_, revision, err := r.store.List(ctx, claims)
	if err != nil {
		return nil, fmt.Errorf("watching objects: %w", err)
	}
	batches, err := r.store.Watch(ctx, "", revision)
	if err != nil {
		return nil, fmt.Errorf("watching objects: %w", err)
	}
	trigger := make(chan struct{}, 1)
	go r.relay(ctx, batches, trigger)
	return trigger, nil
}

// relay ends with ctx, and begins a new watch when a slow reader lost the old one.
func (r *Registry) relay(ctx context.Context, batches <-chan store.Batch, trigger chan<- struct{}) {
	defer close(trigger)
	for {
		batch, open := <-batches
		if !open {
			if ctx.Err() != nil {
				return
			}
			_, revision, err := r.store.List(ctx, claims)
			if err != nil {
				return
			}
			if batches, err = r.store.Watch(ctx, "", revision); err != nil {
				return
			}
		}
		if open && !concernsObjects(batch) {
			continue
		}
		select {
		case trigger <- struct{}{}:
		default:
		}
	}
}

func concernsObjects(b store.Batch) bool {
	for _, e := range b.Events {
		if strings.HasPrefix(e.Entry.Key, objects) || strings.HasPrefix(e.Entry.Key, status) {
			return true
		}
	}
	return false
}
