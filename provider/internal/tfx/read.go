package tfx

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Read implements resource.Resource. What the agent holds is what the state gets; what it does not have any more leaves it.
func (r *Resource) Read(ctx context.Context, q resource.ReadRequest, a *resource.ReadResponse) {
	key, err := r.priorKey(ctx, q.State)
	if err != nil || key == nil {
		a.Diagnostics.AddError("Reading the state", fmt.Sprintf("the id cannot be read: %v", err))
		return
	}
	m, known := recall(ctx, q.Private)
	d, err := r.get(ctx, *key)
	switch {
	case errors.Is(err, api.ErrNotFound):
		if !known {
			a.Diagnostics.Append(explain(ctx, r.spec, "Importing "+key.String(), err)...)
			return
		}
		a.State.RemoveResource(ctx)
		return
	case errors.Is(err, api.ErrUnavailable) && known:
		// A plan goes on without the agent (T1), from what the state knows.
		r.session.Lose(err)
		r.away(&a.Diagnostics)
		return
	case err != nil:
		a.Diagnostics.Append(explain(ctx, r.spec, "Reading "+key.String(), err)...)
		return
	}
	m.Revision = d.Revision
	if condition, waits := r.waitFor(ctx, q.State); !waits || d.Status.Conditions.Get(condition, d.Revision).Status == desired.True {
		m.Unfinished = false
	}
	a.Diagnostics.Append(r.observed(ctx, d, q.State, &a.State)...)
	a.Diagnostics.Append(m.keep(ctx, a.Private)...)
}

func (r *Resource) get(ctx context.Context, key desired.Key) (*api.Document, error) {
	client, err := r.session.Client()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	return client.Get(ctx, key)
}

// observed writes a document into the state, and keeps what is Terraform's alone.
func (r *Resource) observed(ctx context.Context, d *api.Document, before tfsdk.State, state *tfsdk.State) diag.Diagnostics {
	var diags diag.Diagnostics
	held, err := fields(before.Raw)
	if err != nil {
		diags.AddError("Reading the state", err.Error())
		return diags
	}
	declared, err := d.Object()
	if err != nil {
		diags.AddError("Reading "+d.Key.String(), err.Error()+". Install the release of the provider that goes with the agent.")
		return diags
	}
	spec, diags := r.encode(ctx, declared.Spec)
	if diags.HasError() {
		return diags
	}
	computed, err := raw(ctx, r.kind.Observe(d))
	if err != nil {
		diags.AddError("Reading "+d.Key.String(), err.Error())
		return diags
	}
	for _, parts := range []map[string]tftypes.Value{spec, computed} {
		for name, v := range parts {
			held[name] = v
		}
	}
	held[attrID] = tftypes.NewValue(tftypes.String, d.Key.ID())
	state.Raw = object(before.Raw.Type(), held)
	return diags
}

// object makes an object value; an attribute that is missing is null.
func object(t tftypes.Type, parts map[string]tftypes.Value) tftypes.Value {
	if o, ok := t.(tftypes.Object); ok {
		for name, of := range o.AttributeTypes {
			if _, there := parts[name]; !there {
				parts[name] = tftypes.NewValue(of, nil)
			}
		}
	}
	return tftypes.NewValue(t, parts)
}

// ImportState implements resource.ResourceWithImportState. What is imported is read next.
func (r *Resource) ImportState(ctx context.Context, q resource.ImportStateRequest, a *resource.ImportStateResponse) {
	key, err := desired.ParseID(r.kind.Kind, q.ID)
	if err != nil {
		a.Diagnostics.AddError("Importing postern_"+string(r.kind.Kind), fmt.Sprintf("%q is no id: %v. An id is %s.", q.ID, err, idForm(r.kind.Kind)))
		return
	}
	a.Diagnostics.Append(a.State.SetAttribute(ctx, path.Root(attrID), key.ID())...)
}
