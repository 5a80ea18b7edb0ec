package tfx

import (
	"context"
	"fmt"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// fields opens an object value. The caller owns the map.
func fields(v tftypes.Value) (map[string]tftypes.Value, error) {
	inside := map[string]tftypes.Value{}
	if v.IsNull() {
		return inside, nil
	}
	if err := v.As(&inside); err != nil {
		return nil, fmt.Errorf("opening a value of Terraform: %w", err)
	}
	return maps.Clone(inside), nil // As gives the value's own map
}

// specOf cuts the declaration out of a configuration, plan or state. It is null where v is.
func (r *Resource) specOf(ctx context.Context, v tftypes.Value) (tftypes.Value, error) {
	t := r.spec.Type().TerraformType(ctx)
	if v.IsNull() {
		return tftypes.NewValue(t, nil), nil
	}
	all, err := fields(v)
	if err != nil {
		return tftypes.Value{}, err
	}
	parts := make(map[string]tftypes.Value, len(r.kind.Spec))
	for name := range r.kind.Spec {
		parts[name] = all[name]
	}
	return tftypes.NewValue(t, parts), nil
}

// decode reads a declaration from a value that is known whole.
func (r *Resource) decode(ctx context.Context, spec tftypes.Value) (desired.Object, diag.Diagnostics) {
	info, ok := desired.Lookup(r.kind.Kind)
	if !ok {
		return nil, diag.Diagnostics{diag.NewErrorDiagnostic("Reading the declaration", fmt.Sprintf("there is no kind %q", r.kind.Kind))}
	}
	object := info.New()
	return object, tfsdk.Config{Raw: spec, Schema: r.spec}.Get(ctx, object)
}

// encode writes a declaration that has no secrets in it, as the agent's have none.
func (r *Resource) encode(ctx context.Context, object desired.Object) (map[string]tftypes.Value, diag.Diagnostics) {
	state := tfsdk.State{Raw: tftypes.NewValue(r.spec.Type().TerraformType(ctx), nil), Schema: r.spec}
	diags := state.Set(ctx, object)
	if diags.HasError() {
		return nil, diags
	}
	parts, err := fields(state.Raw)
	if err != nil {
		diags.AddError("Writing the declaration", err.Error())
	}
	return parts, diags
}

// raw converts computed values.
func raw(ctx context.Context, values map[string]attr.Value) (map[string]tftypes.Value, error) {
	out := make(map[string]tftypes.Value, len(values))
	for name, value := range values {
		v, err := value.ToTerraformValue(ctx)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		out[name] = v
	}
	return out, nil
}

// settle gives what the state keeps of a computed value: what the plan showed as known, and what was observed for the
// rest. A plan's promise so never breaks; the next refresh brings what has moved since.
func settle(planned, observed tftypes.Value) tftypes.Value {
	if planned.IsFullyKnown() {
		return planned
	}
	if !planned.IsKnown() || planned.IsNull() || observed.IsNull() || !observed.IsKnown() {
		return absentWhereUnknown(planned, observed)
	}
	var p, o map[string]tftypes.Value
	if planned.As(&p) != nil || observed.As(&o) != nil {
		return observed // a list that is known in part: none of ours
	}
	parts := make(map[string]tftypes.Value, len(p))
	for name, value := range p {
		other, ok := o[name]
		if !ok {
			other = tftypes.NewValue(value.Type(), nil)
		}
		parts[name] = settle(value, other)
	}
	return tftypes.NewValue(planned.Type(), parts)
}

func absentWhereUnknown(planned, observed tftypes.Value) tftypes.Value {
	if !planned.IsKnown() && observed.IsKnown() {
		return observed
	}
	known, err := tftypes.Transform(planned, func(_ *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		return tftypes.NewValue(v.Type(), nil), nil
	})
	if err != nil {
		return tftypes.NewValue(planned.Type(), nil)
	}
	return known
}
