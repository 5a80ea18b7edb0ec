package tfx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/session"
)

// defaultTimeout is how long an operation may take where timeouts says nothing.
const defaultTimeout = 5 * time.Minute

// Create implements resource.Resource.
func (r *Resource) Create(ctx context.Context, q resource.CreateRequest, a *resource.CreateResponse) {
	w, ok := r.write(ctx, q.Config, q.Plan, tfsdk.State{Raw: a.State.Raw, Schema: a.State.Schema}, &a.Diagnostics)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout(ctx, timeouts.Value.Create))
	defer cancel()
	d, err := w.create(ctx)
	if err != nil {
		a.Diagnostics.Append(explain(ctx, r.spec, "Creating "+w.key.String(), err)...)
		return
	}
	w.finish(ctx, d, &a.State, a.Private)
}

// Update implements resource.Resource.
func (r *Resource) Update(ctx context.Context, q resource.UpdateRequest, a *resource.UpdateResponse) {
	w, ok := r.write(ctx, q.Config, q.Plan, q.State, &a.Diagnostics)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout(ctx, timeouts.Value.Update))
	defer cancel()
	m, _ := recall(ctx, q.Private)
	d, err := w.update(ctx, m.Revision)
	if err != nil {
		a.Diagnostics.Append(explain(ctx, r.spec, "Updating "+w.key.String(), err)...)
		return
	}
	w.finish(ctx, d, &a.State, a.Private)
}

// writing is one creation or update under way.
type writing struct {
	*Resource
	client      *api.Client
	object      desired.Object
	key         desired.Key
	declaration api.Declaration
	plan        tfsdk.Plan
	creating    bool
	diags       *diag.Diagnostics
}

func (r *Resource) write(ctx context.Context, config tfsdk.Config, plan tfsdk.Plan, before tfsdk.State, diags *diag.Diagnostics) (*writing, bool) {
	client, err := r.session.Client()
	if err != nil {
		diags.AddError("Reaching the agent", err.Error())
		return nil, false
	}
	w := &writing{Resource: r, client: client, plan: plan, creating: before.Raw.IsNull(), diags: diags}
	spec, err := r.specOf(ctx, config.Raw)
	if err != nil {
		diags.AddError("Reading the configuration", err.Error())
		return nil, false
	}
	object, decoding := r.decode(ctx, spec)
	diags.Append(decoding...)
	if diags.HasError() {
		return nil, false
	}
	w.object, w.key = object, object.Key()
	if found, _ := desired.FieldErrors(object.Validate()); len(found) > 0 {
		diags.Append(faults(ctx, r.spec, found)...)
		return nil, false
	}
	if w.declaration, err = declare(ctx, object, tfsdk.State(plan), before); err != nil {
		diags.AddError("Writing the declaration", err.Error())
		return nil, false
	}
	w.declaration.Expect = r.expectation(ctx, plan)
	return w, true
}

// expectation is what the plan showed as known of an ingress's names; nil for other kinds.
func (r *Resource) expectation(ctx context.Context, plan tfsdk.Plan) *api.Expectation {
	if r.kind.Kind != desired.KindIngress {
		return nil
	}
	var e api.Expectation
	var name, tag types.String
	var hosts types.List
	if diags := plan.GetAttribute(ctx, path.Root("dns_name"), &name); !diags.HasError() && !name.IsUnknown() {
		text := name.ValueString()
		e.DNSName = &text
	}
	if diags := plan.GetAttribute(ctx, path.Root("tag"), &tag); !diags.HasError() && !tag.IsUnknown() {
		text := tag.ValueString()
		e.Tag = &text
	}
	if diags := plan.GetAttribute(ctx, path.Root("hosts"), &hosts); !diags.HasError() && !hosts.IsUnknown() {
		list := []string{}
		if diags := hosts.ElementsAs(ctx, &list, false); !diags.HasError() {
			e.Hosts = &list
		}
	}
	return &e
}

func (w *writing) timeout(ctx context.Context, of func(timeouts.Value, context.Context, time.Duration) (time.Duration, diag.Diagnostics)) time.Duration {
	return timeout(ctx, tfsdk.State{Raw: w.plan.Raw, Schema: w.plan.Schema}, of, w.diags)
}

func timeout(
	ctx context.Context, s tfsdk.State, of func(timeouts.Value, context.Context, time.Duration) (time.Duration, diag.Diagnostics), diags *diag.Diagnostics,
) time.Duration {
	var v timeouts.Value
	if d := s.GetAttribute(ctx, path.Root(attrTimeouts), &v); d.HasError() {
		diags.Append(d...)
		return defaultTimeout
	}
	limit, d := of(v, ctx, defaultTimeout)
	diags.Append(d...)
	return limit
}

// create declares the object, once an older one of the same key is gone, or goes on with a tainted one (see Delete).
func (w *writing) create(ctx context.Context) (*api.Document, error) {
	if w.session.Spared(w.key) {
		there, err := w.client.Get(ctx, w.key)
		if err == nil && !there.Deleting {
			return w.update(ctx, there.Revision)
		}
		if err != nil && !errors.Is(err, api.ErrNotFound) {
			return nil, err
		}
	}
	for {
		d, err := w.client.Create(ctx, w.key, w.declaration)
		switch {
		case errors.Is(err, api.ErrDeleting):
			if last, err := w.client.WaitGone(ctx, w.key); err != nil {
				return nil, fmt.Errorf("waiting for an older one to be gone: %w; its conditions:\n%s", err, unmet(last))
			}
		case errors.Is(err, api.ErrExists):
			return nil, &api.Error{Kind: api.ErrExists, Message: sentence(err.Error()) + " " + session.Adoption(w.key)}
		default:
			return w.landed(ctx, d, err, 0)
		}
	}
}

func (w *writing) update(ctx context.Context, revision int64) (*api.Document, error) {
	d, err := w.client.Update(ctx, w.key, w.declaration, revision)
	if errors.Is(err, api.ErrNotFound) {
		return nil, fmt.Errorf("%w; it was deleted by another since the plan. Plan again, and it is created anew", err)
	}
	return w.landed(ctx, d, err, revision)
}

// landed finds out what became of a write whose answer was lost: the write is guarded, so what is there tells.
func (w *writing) landed(ctx context.Context, d *api.Document, err error, revision int64) (*api.Document, error) {
	if !errors.Is(err, api.ErrUnavailable) {
		return d, err
	}
	there, readErr := w.client.Get(ctx, w.key)
	if readErr != nil || there.Revision == revision || there.Workspace != w.client.Workspace() || !w.declares(there) {
		return nil, err
	}
	return there, nil
}

// declares reports whether a document holds this declaration.
func (w *writing) declares(d *api.Document) bool {
	object, err := d.Object()
	if err != nil {
		return false
	}
	theirs, err := json.Marshal(object.Spec)
	return err == nil && bytes.Equal(theirs, w.declaration.Spec)
}
