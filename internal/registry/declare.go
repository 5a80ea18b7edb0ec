package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// attempts bounds how often a commit is tried anew when another process wrote between reading and committing. Each time
// somebody else got further, so many are needed only where many write.
const attempts = 100

// retryPause is the most that an attempt waits, times the number of attempts before it, so that two writers do not keep
// meeting.
const retryPause = time.Millisecond

// retried tries a commit until it meets no other writer.
func retried(ctx context.Context, try func() error) error {
	var err error
	for n := range attempts {
		if err = try(); !errors.Is(err, store.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(retryPause * time.Duration(n+1))):
		}
	}
	return &api.Error{Kind: api.ErrBusy, Message: "others keep writing at the same time; try again: " + err.Error()}
}

// Guard says what must hold of an object for a write to it. The zero value asks for nothing.
type Guard struct {
	// Absent asks that there be no such object.
	Absent bool
	// Revision asks that the object be at this revision; 0 asks nothing.
	Revision int64
}

// Put declares an object. It answers once the declaration is durable; one that is refused changes nothing (X17). A
// declaration equal to what is there changes nothing either.
//
// Errors: api.ErrExists, api.ErrConflict and api.ErrNotFound by the guard; api.ErrDeleting; api.ErrUnacceptable with the
// fields at fault; api.ErrMoved when it would come to other names than expected.
func (r *Registry) Put(ctx context.Context, key desired.Key, d api.Declaration, guard Guard, workspace string) (*api.Document, error) {
	spec, err := accept(key, d)
	if err != nil {
		return nil, err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	if err := retried(ctx, func() error { return r.tryPut(ctx, key, spec, d, guard, workspace) }); err != nil {
		return nil, err
	}
	view, err := r.View(ctx)
	if err != nil {
		return nil, err
	}
	document, ok := view.Document(key)
	if !ok {
		return nil, notFound(key)
	}
	return document, nil
}

// accept checks a declaration by itself.
func accept(key desired.Key, d api.Declaration) (desired.Object, error) {
	spec, err := desired.Decode(key.Kind, d.Spec)
	if err != nil {
		return nil, &api.Error{Kind: api.ErrInvalid, Message: err.Error()}
	}
	if strings.Contains(string(d.Spec), `\u0000`) {
		return nil, &api.Error{Kind: api.ErrInvalid, Message: key.String() + ": a value is not known yet; it can be declared once it is"}
	}
	if got := spec.Key(); got != key {
		return nil, &api.Error{Kind: api.ErrInvalid, Message: fmt.Sprintf("the path says %s and the spec %s; make them equal", key, got)}
	}
	if err := spec.Validate(); err != nil {
		return nil, refused(key, err)
	}
	known := spec.Secrets()
	for name := range d.Secrets {
		if _, ok := known[name]; !ok && !takesSecret(key.Kind, name) {
			return nil, &api.Error{Kind: api.ErrInvalid, Message: fmt.Sprintf("%s has no secret %q", key, name)}
		}
	}
	return spec, nil
}

func takesSecret(kind desired.Kind, name string) bool {
	return kind == desired.KindTailnet && name == desired.SecretAPIKey
}

func refused(key desired.Key, err error) error {
	fields, rest := desired.FieldErrors(err)
	e := &api.Error{Kind: api.ErrUnacceptable, Message: key.String() + " is refused", Fields: fields}
	if rest != nil {
		e.Message += ": " + rest.Error()
	}
	return e
}

func notFound(key desired.Key) error {
	return &api.Error{Kind: api.ErrNotFound, Message: "there is no " + key.String()}
}

// tryPut judges a declaration by what is there and commits it. It is store.ErrConflict when that changed meanwhile.
func (r *Registry) tryPut(ctx context.Context, key desired.Key, spec desired.Object, d api.Declaration, guard Guard, workspace string) error {
	view, err := r.View(ctx)
	if err != nil {
		return err
	}
	old, exists := view.Document(key)
	if err := guard.check(key, old, exists); err != nil {
		return err
	}
	canonical, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	object := blueprint.Object{Spec: spec, Workspace: workspace}
	if exists {
		object.Created, object.Revision = old.Created, old.Revision
		if workspace == "" {
			object.Workspace = old.Workspace
		}
	}
	after := view.with(object)
	if err := judge(after, key, spec, d.Expect); err != nil {
		return err
	}
	if exists && bytes.Equal(canonical, old.Spec) && len(d.Secrets) == 0 && old.Workspace == object.Workspace {
		return nil
	}
	value, err := json.Marshal(record{Spec: canonical, Workspace: object.Workspace})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	ops := []store.Op{store.Put(objectKey(key), value, guardOf(old, exists))}
	for name, secret := range d.Secrets {
		stored := secretKey(key, name)
		ops = append(ops, store.Put(stored, r.sealer.Seal(stored, []byte(secret))))
	}
	claims, err := view.claimOps(after)
	if err != nil {
		return err
	}
	if _, err := r.store.Commit(ctx, append(ops, claims...)...); err != nil {
		return fmt.Errorf("storing %s: %w", key, err)
	}
	return nil
}

func guardOf(old *api.Document, exists bool) store.Guard {
	if !exists {
		return store.IfAbsent()
	}
	return store.IfRevision(store.Revision(old.Revision))
}

func (g Guard) check(key desired.Key, old *api.Document, exists bool) error {
	switch {
	case exists && old.Deleting:
		return &api.Error{Kind: api.ErrDeleting, Message: key.String() + " is being deleted; wait until it is gone"}
	case exists && g.Absent:
		return &api.Error{Kind: api.ErrExists, Message: fmt.Sprintf("%s exists already, declared by workspace %q", key, old.Workspace)}
	case !exists && g.Revision != 0:
		return notFound(key)
	case exists && g.Revision != 0 && old.Revision != g.Revision:
		return &api.Error{Kind: api.ErrConflict, Message: fmt.Sprintf(
			"%s is at revision %d, not at %d: it was changed since it was read, by workspace %q; read it again", key, old.Revision, g.Revision, old.Workspace)}
	}
	return nil
}

// with compiles the view with an object added or replaced.
func (v *View) with(changed ...blueprint.Object) *blueprint.Compilation {
	c := blueprint.Compile(v.snapshot())
	for _, o := range changed {
		if o.Created == 0 {
			o.Created = int64(^uint64(0) >> 1) // younger than all that is there
		}
		c.Put(o)
	}
	return c
}

func (v *View) snapshot() blueprint.Snapshot {
	out := blueprint.Snapshot{Claims: v.Compilation.Claims(), Facts: map[string]blueprint.Facts{}}
	for key := range v.documents {
		if o, ok := v.Compilation.Object(key); ok {
			out.Objects = append(out.Objects, o)
		}
		if key.Kind == desired.KindTailnet {
			out.Facts[key.Name] = v.Compilation.Facts(key.Name)
		}
	}
	return out
}

// judge refuses an object for what it comes to among the others.
func judge(c *blueprint.Compilation, key desired.Key, spec desired.Object, expect *api.Expectation) error {
	var fields []*desired.FieldError
	in := c.Ingress(key)
	if in != nil {
		fields = in.Refused()
	} else {
		for _, p := range c.Missing(spec) {
			fields = append(fields, &p.FieldError)
		}
	}
	if len(fields) > 0 {
		return &api.Error{Kind: api.ErrUnacceptable, Message: key.String() + " is refused", Fields: fields}
	}
	if in == nil || expect == nil {
		return nil
	}
	return moved(in, expect)
}

func moved(in *blueprint.Ingress, expect *api.Expectation) error {
	var differences []string
	differ := func(what, planned, now string) {
		if planned != now {
			differences = append(differences, fmt.Sprintf("%s was planned as %q and would be %q", what, planned, now))
		}
	}
	if expect.DNSName != nil {
		differ("dns_name", *expect.DNSName, in.DNSName)
	}
	if expect.Tag != nil {
		differ("tag", *expect.Tag, in.Tag)
	}
	if expect.Hosts != nil {
		differ("hosts", strings.Join(*expect.Hosts, ", "), strings.Join(in.Hosts, ", "))
	}
	if len(differences) == 0 {
		return nil
	}
	return &api.Error{Kind: api.ErrMoved, Message: fmt.Sprintf(
		"%s: %s. Something that it depends on changed since the plan, such as the tailnet's templates; plan again and review the names",
		in.Key, strings.Join(differences, "; "))}
}

// claimOps writes the claims that a change leads to, guarded by what they were made from.
func (v *View) claimOps(after *blueprint.Compilation) ([]store.Op, error) {
	var ops []store.Op
	now := after.Claims()
	for _, tailnet := range slices.Sorted(maps.Keys(now)) {
		held, stored := v.claims[tailnet]
		value, err := json.Marshal(now[tailnet])
		if err != nil {
			return nil, fmt.Errorf("encoding the claims of tailnet %s: %w", tailnet, err)
		}
		if stored {
			if before, err := json.Marshal(held.Claims); err == nil && bytes.Equal(before, value) {
				continue
			}
			ops = append(ops, store.Put(claimsKey(tailnet), value, store.IfRevision(held.revision)))
			continue
		}
		if len(now[tailnet].Held) > 0 {
			ops = append(ops, store.Put(claimsKey(tailnet), value, store.IfAbsent()))
		}
	}
	return ops, nil
}
