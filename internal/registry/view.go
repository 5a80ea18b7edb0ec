package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// View is everything that is declared and observed, at one revision of the store. It is never changed.
type View struct {
	// Compilation is what the declared objects add up to. It must not be changed.
	Compilation *blueprint.Compilation

	documents map[desired.Key]*api.Document
	claims    map[string]storedClaims
}

// state is the store's content, decoded, as of revision. It is changed in place under Registry.mu.
type state struct {
	revision store.Revision
	// declared says that what a compilation is made from changed since the last one.
	declared  bool
	documents map[desired.Key]*api.Document
	objects   map[desired.Key]blueprint.Object
	claims    map[string]storedClaims
}

type storedClaims struct {
	blueprint.Claims
	revision store.Revision
}

// View reads what is there now. What a caller wrote before is in it.
func (r *Registry) View(ctx context.Context) (*View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current, err := r.revision(ctx)
	if err != nil {
		return nil, err
	}
	if r.view != nil && r.state.revision >= current {
		return r.view, nil
	}
	if err := r.refresh(ctx); err != nil {
		r.state, r.view = nil, nil
		return nil, err
	}
	return r.view, nil
}

// revision is the store's current one. A list of nothing tells it without waiting for commits under way.
func (r *Registry) revision(ctx context.Context) (store.Revision, error) {
	_, revision, err := r.store.List(ctx, "registry/none/")
	if err != nil {
		return 0, fmt.Errorf("reading the store's revision: %w", err)
	}
	return revision, nil
}

// refresh brings the state up to date, by what changed where the store still knows it, else anew, and compiles it.
func (r *Registry) refresh(ctx context.Context) error {
	changed := true
	if r.state != nil {
		var err error
		changed, err = r.catchUp(ctx)
		if err != nil && !errors.Is(err, store.ErrCompacted) {
			return err
		}
		if err != nil {
			r.state = nil
		}
	}
	if r.state == nil {
		if err := r.load(ctx); err != nil {
			return err
		}
	}
	if changed || r.view == nil {
		r.view = r.state.show(r.view)
	}
	return nil
}

// load reads the store whole.
func (r *Registry) load(ctx context.Context) error {
	entries, revision, err := r.store.List(ctx, "")
	if err != nil {
		return fmt.Errorf("reading the store: %w", err)
	}
	s := &state{
		revision: revision, declared: true, documents: map[desired.Key]*api.Document{}, objects: map[desired.Key]blueprint.Object{}, claims: map[string]storedClaims{},
	}
	slices.SortStableFunc(entries, func(a, b store.Entry) int { return rank(a.Key) - rank(b.Key) })
	for _, entry := range entries {
		if _, err := s.apply(store.Event{Entry: entry}); err != nil {
			return err
		}
	}
	r.state = s
	return nil
}

// rank puts objects before what speaks of them.
func rank(key string) int {
	if strings.HasPrefix(key, objects) {
		return 0
	}
	return 1
}

// catchUp applies the commits since the state's revision and reports whether any concerned it.
func (r *Registry) catchUp(ctx context.Context) (bool, error) {
	target, err := r.revision(ctx)
	if err != nil {
		return false, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	batches, err := r.store.Watch(watching, "", r.state.revision)
	if err != nil {
		return false, fmt.Errorf("reading the store's changes: %w", err)
	}
	concerned := false
	for r.state.revision < target {
		batch, open := <-batches
		if !open {
			return false, errors.Join(store.ErrCompacted, ctx.Err())
		}
		slices.SortStableFunc(batch.Events, func(a, b store.Event) int { return rank(a.Entry.Key) - rank(b.Entry.Key) })
		for _, event := range batch.Events {
			ours, err := r.state.apply(event)
			if err != nil {
				return false, err
			}
			concerned = concerned || ours
		}
		r.state.revision = batch.Revision
	}
	return concerned, nil
}

// apply takes one change into the state and reports whether it concerns it.
func (s *state) apply(e store.Event) (bool, error) {
	key := e.Entry.Key
	switch {
	case strings.HasPrefix(key, objects):
		s.declared = true
		return true, s.applyObject(e)
	case strings.HasPrefix(key, status):
		return true, s.applyStatus(e)
	case strings.HasPrefix(key, claims):
		s.declared = true
		tailnet := strings.TrimPrefix(key, claims)
		if e.Deleted {
			delete(s.claims, tailnet)
			return true, nil
		}
		held := storedClaims{revision: e.Entry.Modified}
		if err := json.Unmarshal(e.Entry.Value, &held.Claims); err != nil {
			return true, fmt.Errorf("decoding %s of the store: %w", key, err)
		}
		s.claims[tailnet] = held
		return true, nil
	}
	return false, nil
}

func (s *state) applyObject(e store.Event) error {
	key, err := keyOf(e.Entry.Key, objects)
	if err != nil {
		return err
	}
	if e.Deleted {
		delete(s.documents, key)
		delete(s.objects, key)
		return nil
	}
	var rec record
	if err := json.Unmarshal(e.Entry.Value, &rec); err != nil {
		return fmt.Errorf("decoding %s of the store: %w", e.Entry.Key, err)
	}
	d := &api.Document{
		Key: key, Revision: int64(e.Entry.Modified), Created: int64(e.Entry.Created),
		Workspace: rec.Workspace, Deleting: rec.Deleting, Released: rec.Released, Spec: rec.Spec,
	}
	if old := s.documents[key]; old != nil && old.Created == d.Created {
		d.Status = old.Status
	}
	if s.objects[key], err = d.Object(); err != nil {
		return fmt.Errorf("decoding %s of the store: %w", e.Entry.Key, err)
	}
	s.documents[key] = d
	return nil
}

func (s *state) applyStatus(e store.Event) error {
	key, err := keyOf(e.Entry.Key, status)
	if err != nil {
		return err
	}
	old := s.documents[key]
	if old == nil {
		return nil
	}
	d := *old
	d.Status = api.Status{}
	if !e.Deleted {
		if err := json.Unmarshal(e.Entry.Value, &d.Status); err != nil {
			return fmt.Errorf("decoding %s of the store: %w", e.Entry.Key, err)
		}
	}
	s.declared = s.declared || !reflect.DeepEqual(old.Status.Facts, d.Status.Facts)
	s.documents[key] = &d
	return nil
}

// blueprint gives the state for compilation.
func (s *state) blueprint() blueprint.Snapshot {
	out := blueprint.Snapshot{Claims: map[string]blueprint.Claims{}, Facts: map[string]blueprint.Facts{}}
	for _, o := range s.objects {
		out.Objects = append(out.Objects, o)
	}
	for tailnet, held := range s.claims {
		out.Claims[tailnet] = held.Claims
	}
	for key, d := range s.documents {
		if key.Kind == desired.KindTailnet && d.Status.Facts != nil {
			out.Facts[key.Name] = *d.Status.Facts
		}
	}
	return out
}

// show makes a view. What was observed seldom changes what is declared, and then the compilation is the last view's.
func (s *state) show(last *View) *View {
	v := &View{
		documents: make(map[desired.Key]*api.Document, len(s.documents)), claims: maps.Clone(s.claims),
	}
	if last != nil && !s.declared {
		v.Compilation = last.Compilation
	} else {
		v.Compilation = blueprint.Compile(s.blueprint())
	}
	for key, old := range s.documents {
		d := *old
		if before, ok := last.document(key); ok && v.Compilation == last.Compilation {
			d.Ingress = before.Ingress
		} else {
			d.Ingress = v.Compilation.Ingress(key)
		}
		v.documents[key] = &d
	}
	s.declared = false
	return v
}

func (v *View) document(key desired.Key) (*api.Document, bool) {
	if v == nil {
		return nil, false
	}
	return v.Document(key)
}

// Document finds an object. The caller must not change it.
func (v *View) Document(key desired.Key) (*api.Document, bool) {
	d, ok := v.documents[key]
	return d, ok
}

// Documents lists the objects of a kind, or of every kind where it is empty, in order.
func (v *View) Documents(kind desired.Kind) []*api.Document {
	var out []*api.Document
	for key, d := range v.documents {
		if kind == "" || key.Kind == kind {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *api.Document) int { return a.Key.Compare(b.Key) })
	return out
}

// Snapshot gives the view for the wire.
func (v *View) Snapshot(info api.Info) *api.Snapshot {
	out := &api.Snapshot{Info: info, Claims: v.Compilation.Claims(), Facts: map[string]blueprint.Facts{}, Documents: []api.Document{}}
	for _, d := range v.Documents("") {
		copied := *d
		copied.Ingress = nil
		out.Documents = append(out.Documents, copied)
		if d.Key.Kind == desired.KindTailnet {
			out.Facts[d.Key.Name] = v.Compilation.Facts(d.Key.Name)
		}
	}
	return out
}
