package tfx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// probe has the agent try the declaration, and so look at what the control plane can do (P10).
func (r *Resource) probe(ctx context.Context, q resource.ModifyPlanRequest, p *Planning) diag.Diagnostics {
	var diags diag.Diagnostics
	key := p.Object.Key()
	declaration, err := declare(ctx, p.Object, tfsdk.State{Raw: q.Plan.Raw, Schema: q.Plan.Schema}, q.State)
	if err != nil {
		diags.AddError("Trying "+key.String(), err.Error())
		return diags
	}
	answer, err := r.session.Ask(ctx, api.Change{Key: key, Declaration: declaration})
	switch {
	case errors.Is(err, api.ErrUnavailable):
		diags.AddWarning("The control plane was not asked", err.Error())
		return diags
	case err != nil:
		return explain(ctx, r.spec, "Planning "+key.String(), err)
	case answer == nil:
		return diags
	}
	for _, lack := range answer.Facts[key.Name].Lacks {
		summary := fmt.Sprintf("%s: %s", key, lack.Summary)
		if lack.Refuse {
			diags.AddError(summary, sentence(lack.Detail))
		} else {
			diags.AddWarning(summary, sentence(lack.Detail))
		}
	}
	return diags
}

// declare makes what is sent to the agent. A secret goes along where the object is new or the secret's version changed;
// otherwise the agent keeps what it has. planned and before are for comparing versions; before may be null.
func declare(ctx context.Context, object desired.Object, planned, before tfsdk.State) (api.Declaration, error) {
	spec, err := json.Marshal(object)
	if err != nil {
		return api.Declaration{}, fmt.Errorf("encoding %s: %w", object.Key(), err)
	}
	d := api.Declaration{Spec: spec}
	for name, secret := range object.Secrets() {
		if !before.Raw.IsNull() && !changed(ctx, name+"_version", planned, before) {
			continue
		}
		if d.Secrets == nil {
			d.Secrets = map[string]string{}
		}
		d.Secrets[name] = secret.Reveal()
	}
	return d, nil
}

// changed compares an attribute, named with dots, in two states.
func changed(ctx context.Context, name string, a, b tfsdk.State) bool {
	at := path.Empty()
	for i, part := range strings.Split(name, ".") {
		if i == 0 {
			at = path.Root(part)
		} else {
			at = at.AtName(part)
		}
	}
	var values [2]tftypes.Value
	for i, s := range []tfsdk.State{a, b} {
		var v attr.Value
		if diags := s.GetAttribute(ctx, at, &v); diags.HasError() || v == nil {
			return true
		}
		raw, err := v.ToTerraformValue(ctx)
		if err != nil {
			return true
		}
		values[i] = raw
	}
	return !values[0].Equal(values[1])
}
