package tfx

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/session"
)

// Planning is what a kind plans its computed attributes from.
type Planning struct {
	Object desired.Object
	// Unknown is what is not known of Object.
	Unknown Unknown
	// Ingress is what the session makes of an ingress; nil where its tailnet is not known.
	Ingress *blueprint.Ingress
	// Prior is the computed attributes as they are; nil where the object is to be created.
	Prior map[string]attr.Value
	// Before is the declaration as it is; nil where the object is to be created.
	Before desired.Object
	// Changes is set where the object is new or its declaration changes. A kind's plan sets it where what it computes changes.
	Changes bool
}

// ModifyPlan implements resource.ResourceWithModifyPlan. It writes computed attributes alone.
func (r *Resource) ModifyPlan(ctx context.Context, q resource.ModifyPlanRequest, a *resource.ModifyPlanResponse) {
	if r.session == nil {
		return
	}
	prior, err := r.priorKey(ctx, q.State)
	if err != nil {
		a.Diagnostics.AddError("Reading the state", err.Error())
		return
	}
	if q.Plan.Raw.IsNull() {
		r.planEnd(ctx, prior, a)
		return
	}
	p, diags := r.planning(ctx, q)
	a.Diagnostics.Append(diags...)
	if a.Diagnostics.HasError() {
		return
	}
	if r.kind.Probe && p.Changes && !p.Unknown.Any() {
		a.Diagnostics.Append(r.probe(ctx, q, p)...)
	}
	out, err := r.session.Put(ctx, session.Intent{Object: p.Object, Prior: prior, Changes: p.Changes, Unknown: p.Unknown.Covers})
	if err != nil {
		a.Diagnostics.Append(explain(ctx, r.spec, "Planning "+p.Object.Key().String(), err)...)
		return
	}
	r.notices(ctx, &a.Diagnostics, out)
	r.warnings(ctx, p, &a.Diagnostics)
	p.Ingress = out.Ingress
	a.Diagnostics.Append(r.show(ctx, p, out.Ending, q.Private, a)...)
	if prior == nil {
		if _, known := recall(ctx, q.Private); !known {
			a.Diagnostics.Append(a.Private.SetKey(ctx, privateCreation, []byte("true"))...)
		}
	}
}

// priorKey is the key of the object that the state holds; nil where there is none.
func (r *Resource) priorKey(ctx context.Context, state tfsdk.State) (*desired.Key, error) {
	if state.Raw.IsNull() {
		return nil, nil
	}
	var id types.String
	state.GetAttribute(ctx, path.Root(attrID), &id)
	key, err := desired.ParseID(r.kind.Kind, id.ValueString())
	return &key, err
}

func (r *Resource) planEnd(ctx context.Context, prior *desired.Key, a *resource.ModifyPlanResponse) {
	if prior == nil {
		return
	}
	out, err := r.session.Delete(ctx, *prior)
	if err != nil {
		a.Diagnostics.Append(explain(ctx, r.spec, "Planning the end of "+prior.String(), err)...)
		return
	}
	r.notices(ctx, &a.Diagnostics, out)
}

// planning reads what the plan is made from. The declaration is the configuration's, since a plan has no secrets.
func (r *Resource) planning(ctx context.Context, q resource.ModifyPlanRequest) (*Planning, diag.Diagnostics) {
	var diags diag.Diagnostics
	var specs [3]tftypes.Value
	for i, v := range []tftypes.Value{q.Config.Raw, q.Plan.Raw, q.State.Raw} {
		var err error
		if specs[i], err = r.specOf(ctx, v); err != nil {
			diags.AddError("Reading the plan", err.Error())
			return nil, diags
		}
	}
	config, planned, before := specs[0], specs[1], specs[2]
	known, unknown, err := Known(config)
	if err != nil {
		diags.AddError("Reading the plan", err.Error())
		return nil, diags
	}
	p := &Planning{Unknown: unknown, Changes: !planned.Equal(before)}
	p.Object, diags = r.decode(ctx, known)
	if before.IsNull() || diags.HasError() {
		return p, diags
	}
	p.Before, diags = r.decode(ctx, before)
	p.Prior = make(map[string]attr.Value, len(r.kind.Computed))
	for name := range r.kind.Computed {
		var v attr.Value
		diags.Append(q.State.GetAttribute(ctx, path.Root(name), &v)...)
		p.Prior[name] = v
	}
	return p, diags
}

// warnings says what is valid and yet likely to surprise, once: where the declaration is new or changes.
func (r *Resource) warnings(ctx context.Context, p *Planning, diags *diag.Diagnostics) {
	if !p.Changes || p.Unknown.Any() {
		return
	}
	for _, w := range p.Object.Warnings() {
		diags.AddAttributeWarning(attributePath(ctx, r.spec, w.Path), w.Summary, located(w.Path, w.Detail))
	}
}

// show writes the computed attributes into the plan.
func (r *Resource) show(ctx context.Context, p *Planning, ending bool, remembered private, a *resource.ModifyPlanResponse) diag.Diagnostics {
	var diags diag.Diagnostics
	values := map[string]attr.Value{}
	if r.kind.Plan != nil {
		values = r.kind.Plan(p)
	}
	m, _ := recall(ctx, remembered)
	unfinished := m.Unfinished && p.Prior != nil
	for name, attribute := range r.kind.Computed {
		_, set := values[name]
		volatile := name == AttrReady || name == AttrConditions
		switch {
		case set && !(unfinished && volatile):
		case p.Prior == nil || p.Changes || unfinished && (volatile || p.Prior[name].IsNull()):
			unknown, err := attribute.GetType().ValueFromTerraform(ctx, tftypes.NewValue(attribute.GetType().TerraformType(ctx), tftypes.UnknownValue))
			if err != nil {
				diags.AddError("Planning "+name, err.Error())
				return diags
			}
			values[name] = unknown
		default:
			values[name] = p.Prior[name]
		}
	}
	values[attrID] = types.StringUnknown()
	if key := p.Object.Key(); desired.Known(key.Path()) {
		values[attrID] = types.StringValue(key.ID())
	}
	if ending && p.Prior != nil {
		// The agent is ending the object, so it can only be created anew once it is gone.
		values[AttrReady] = types.BoolUnknown()
		a.RequiresReplace = append(a.RequiresReplace, path.Root(AttrReady))
	}
	computed, err := raw(ctx, values)
	if err != nil {
		diags.AddError("Planning "+p.Object.Key().String(), err.Error())
		return diags
	}
	parts, err := fields(a.Plan.Raw) // at once: the framework's way walks the whole plan for each attribute
	if err != nil {
		diags.AddError("Planning "+p.Object.Key().String(), err.Error())
		return diags
	}
	maps.Copy(parts, computed)
	a.Plan.Raw = tftypes.NewValue(a.Plan.Raw.Type(), parts)
	return diags
}
