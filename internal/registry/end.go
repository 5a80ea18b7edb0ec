package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// Delete asks for an object's end. One that something outside follows from (a node, entries in a policy) is marked, and is
// gone once its worker is done (P11); another is gone at once. Asking twice is fine.
//
// Errors: api.ErrNotFound; api.ErrInUse naming who refers to it (T8).
func (r *Registry) Delete(ctx context.Context, key desired.Key, guard Guard) error {
	return r.change(ctx, key, func(view *View, d *api.Document) ([]store.Op, error) {
		if d.Deleting {
			return nil, nil
		}
		if err := guard.check(key, d, true); err != nil {
			return nil, err
		}
		if users := view.Compilation.Users(key); len(users) > 0 {
			names := make([]string, len(users))
			for i, user := range users {
				names[i] = user.String()
			}
			return nil, &api.Error{Kind: api.ErrInUse, Message: fmt.Sprintf(
				"%s is in use by %s; delete or move these first", key, strings.Join(names, ", "))}
		}
		if key.Kind == desired.KindIssuer {
			return r.removal(ctx, key, d)
		}
		return mark(d, func(rec *record) { rec.Deleting = true }, view)
	})
}

// Release records that a deleting object's node is gone, so that its policy entries can go.
func (r *Registry) Release(ctx context.Context, key desired.Key) error {
	return r.change(ctx, key, func(view *View, d *api.Document) ([]store.Op, error) {
		if d.Released {
			return nil, nil
		}
		return mark(d, func(rec *record) { rec.Deleting, rec.Released = true, true }, view)
	})
}

// Finish forgets a deleting object, with its secrets and what was observed of it.
func (r *Registry) Finish(ctx context.Context, key desired.Key) error {
	err := r.change(ctx, key, func(_ *View, d *api.Document) ([]store.Op, error) {
		if !d.Deleting {
			return nil, fmt.Errorf("%s is not being deleted", key)
		}
		return r.removal(ctx, key, d)
	})
	if errors.Is(err, api.ErrNotFound) {
		return nil
	}
	return err
}

// change commits what decide answers with, and decides anew when the object changed meanwhile.
func (r *Registry) change(ctx context.Context, key desired.Key, decide func(*View, *api.Document) ([]store.Op, error)) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return retried(ctx, func() error {
		view, err := r.View(ctx)
		if err != nil {
			return err
		}
		d, ok := view.Document(key)
		if !ok {
			return notFound(key)
		}
		ops, err := decide(view, d)
		if err != nil || len(ops) == 0 {
			return err
		}
		if _, err := r.store.Commit(ctx, ops...); err != nil {
			return fmt.Errorf("storing the change of %s: %w", key, err)
		}
		return nil
	})
}

// mark rewrites an object's record and the claims that follow.
func mark(d *api.Document, set func(*record), view *View) ([]store.Op, error) {
	rec := record{Spec: d.Spec, Workspace: d.Workspace, Deleting: d.Deleting, Released: d.Released}
	set(&rec)
	value, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", d.Key, err)
	}
	object, ok := view.Compilation.Object(d.Key)
	if !ok {
		return nil, notFound(d.Key)
	}
	object.Deleting, object.Released = rec.Deleting, rec.Released
	claims, err := view.claimOps(view.with(object))
	if err != nil {
		return nil, err
	}
	return append([]store.Op{store.Put(objectKey(d.Key), value, guardOf(d, true))}, claims...), nil
}

// removal forgets everything of an object.
func (r *Registry) removal(ctx context.Context, key desired.Key, d *api.Document) ([]store.Op, error) {
	ops := []store.Op{store.Delete(objectKey(key), guardOf(d, true)), store.Delete(statusKey(key))}
	held, _, err := r.store.List(ctx, secretKey(key, ""))
	if err != nil {
		return nil, fmt.Errorf("listing the secrets of %s: %w", key, err)
	}
	for _, entry := range held {
		ops = append(ops, store.Delete(entry.Key))
	}
	if key.Kind == desired.KindTailnet {
		ops = append(ops, store.Delete(claimsKey(key.Name)))
	}
	return ops, nil
}

// Plan tries changes together and writes nothing.
func (r *Registry) Plan(ctx context.Context, changes []api.Change) (*api.PlanResponse, error) {
	view, err := r.View(ctx)
	if err != nil {
		return nil, err
	}
	out := &api.PlanResponse{Problems: []api.ObjectProblem{}, Ingresses: map[string]*blueprint.Ingress{}, Facts: map[string]blueprint.Facts{}}
	c := view.with()
	changed := map[desired.Key]desired.Object{}
	for _, change := range changes {
		old, exists := view.Document(change.Key)
		if exists {
			out.Exists = append(out.Exists, change.Key)
		}
		if change.Delete {
			c.Delete(change.Key)
			continue
		}
		spec, err := desired.Decode(change.Key.Kind, change.Spec)
		if err != nil {
			return nil, &api.Error{Kind: api.ErrInvalid, Message: err.Error()}
		}
		object := blueprint.Object{Spec: spec, Created: int64(^uint64(0) >> 1)}
		if exists {
			object.Created, object.Revision, object.Workspace = old.Created, old.Revision, old.Workspace
		}
		fields, _ := desired.FieldErrors(spec.Validate())
		for _, f := range fields {
			out.Problems = append(out.Problems, invalid(change.Key, f))
		}
		if t, ok := spec.(*desired.Tailnet); ok && len(fields) == 0 && r.prober != nil {
			facts := r.prober(ctx, t, r.apiKey(ctx, change))
			facts.BaseDomain = c.Facts(t.Name).BaseDomain
			c.SetFacts(t.Name, facts)
			out.Facts[t.Name] = facts
		}
		c.Put(object)
		changed[change.Key] = spec
	}
	collect(c, view, changed, changes, out)
	return out, nil
}

func invalid(key desired.Key, f *desired.FieldError) api.ObjectProblem {
	return api.ObjectProblem{Key: key, Problem: blueprint.Problem{FieldError: *f, Reason: desired.ReasonInvalidSpec, Refuse: true}}
}

// apiKey is the key that a change brings, or else the stored one.
func (r *Registry) apiKey(ctx context.Context, change api.Change) string {
	if key, ok := change.Secrets[desired.SecretAPIKey]; ok {
		return key
	}
	key, err := r.Secret(ctx, change.Key, desired.SecretAPIKey)
	if err != nil {
		return "" // the prober says what an absent key means
	}
	return key
}

// collect adds the verdicts on what changed, on ingresses that the changes reach, and on deletions of what is in use.
func collect(c *blueprint.Compilation, before *View, changed map[desired.Key]desired.Object, changes []api.Change, out *api.PlanResponse) {
	for _, change := range changes {
		if spec, ok := changed[change.Key]; ok && change.Key.Kind != desired.KindIngress {
			for _, p := range c.Missing(spec) {
				out.Problems = append(out.Problems, api.ObjectProblem{Key: change.Key, Problem: p})
			}
		}
	}
	for _, o := range c.Objects(desired.KindIngress) {
		key := o.Spec.Key()
		in := c.Ingress(key)
		_, direct := changed[key]
		if !direct && sameVerdict(before.Compilation.Ingress(key), in) {
			continue
		}
		out.Ingresses[key.Path()] = in
		for _, p := range in.Problems {
			out.Problems = append(out.Problems, api.ObjectProblem{Key: key, Problem: p})
		}
	}
}

func sameVerdict(a, b *blueprint.Ingress) bool {
	before, errA := json.Marshal(a)
	after, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(before) == string(after)
}
