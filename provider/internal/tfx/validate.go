package tfx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// ValidateConfig implements resource.ResourceWithValidateConfig: it says every fault that can be told from the
// configuration alone, whatever becomes of what is not known yet.
func (r *Resource) ValidateConfig(ctx context.Context, q resource.ValidateConfigRequest, a *resource.ValidateConfigResponse) {
	var word types.String
	a.Diagnostics.Append(q.Config.GetAttribute(ctx, path.Root(attrWaitFor), &word)...)
	if !word.IsNull() && !word.IsUnknown() && !slices.Contains(r.words(), word.ValueString()) {
		a.Diagnostics.AddAttributeError(path.Root(attrWaitFor), "Invalid wait_for", fmt.Sprintf(
			"%q: the value is one of %s; pick one of them.", word.ValueString(), strings.Join(r.words(), ", ")))
	}
	spec, err := r.specOf(ctx, q.Config.Raw)
	if err != nil {
		a.Diagnostics.AddError("Reading the configuration", err.Error())
		return
	}
	if found := r.holes(spec); len(found) > 0 {
		a.Diagnostics.Append(faults(ctx, r.spec, found)...)
		return
	}
	found, diags := r.sureFaults(ctx, spec)
	a.Diagnostics.Append(diags...)
	a.Diagnostics.Append(faults(ctx, r.spec, found)...)
}

// sureFaults gives the faults that hold whatever becomes of the unknown: those that are found with each of three guesses, and
// not where the value is unknown itself. An unknown value may yet turn out to be absent.
func (r *Resource) sureFaults(ctx context.Context, spec tftypes.Value) ([]*desired.FieldError, diag.Diagnostics) {
	guesses := []guess{
		{elements: true},
		{elements: true, truth: true},
		{elements: true, absent: r.mayBeAbsent},
	}
	var sure []*desired.FieldError
	for i, g := range guesses {
		known, unknown, err := fill(spec, g)
		if err != nil {
			return nil, diag.Diagnostics{diag.NewErrorDiagnostic("Reading the configuration", err.Error())}
		}
		object, diags := r.decode(ctx, known)
		if diags.HasError() {
			return nil, diags
		}
		found, _ := desired.FieldErrors(object.Validate())
		found = slices.DeleteFunc(found, func(f *desired.FieldError) bool { return unknown.Covers(f.Path) })
		if i == 0 {
			sure = found
		}
		sure = slices.DeleteFunc(sure, func(f *desired.FieldError) bool {
			return !slices.ContainsFunc(found, func(o *desired.FieldError) bool { return o.Rule == f.Rule && o.Path.String() == f.Path.String() })
		})
		if !unknown.Any() {
			break
		}
	}
	return sure, nil
}
