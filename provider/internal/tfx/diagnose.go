package tfx

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/session"
)

// remedies says what to do about each error of the API that has one remedy.
var remedies = []struct {
	err    error
	remedy string
}{
	{api.ErrUnavailable, "Start the agent (`postern run`), or correct the provider's endpoint (POSTERN_ENDPOINT). Nothing is lost: apply again."},
	{api.ErrUnauthorized, "Set the provider's token (POSTERN_TOKEN); `postern token create` on the agent's host makes one."},
	{api.ErrForbidden, "Use a token that allows it; `postern token create` on the agent's host makes one."},
	{api.ErrConflict, "It was changed by another since the plan. Plan again, review what that shows, and apply."},
	{api.ErrMoved, "Nothing was changed. Plan again, review the names, and apply."},
	{api.ErrInUse, "Where this is part of a replacement, such as for another name, have Terraform create the new one first: lifecycle { create_before_destroy = true }."},
	{api.ErrBusy, "Apply again later, or with a lower -parallelism."},
	{api.ErrVersion, "Install the release of the provider that goes with the agent."},
	{context.DeadlineExceeded, "Raise timeouts, or see what the agent is busy with: `postern status`."},
}

// explain turns an error of the API into diagnostics. doing says what could not be done.
func explain(ctx context.Context, s schema.Schema, doing string, err error) diag.Diagnostics {
	var diags diag.Diagnostics
	var answer *api.Error
	if errors.As(err, &answer) && len(answer.Fields) > 0 {
		for _, f := range answer.Fields {
			diags.AddAttributeError(attributePath(ctx, s, f.Path), doing, located(f.Path, f.Detail()))
		}
		return diags
	}
	detail := sentence(err.Error())
	for _, row := range remedies {
		if errors.Is(err, row.err) {
			detail += "\n\n" + row.remedy
			break
		}
	}
	diags.AddError(doing, detail)
	return diags
}

// faults points each fault of a declaration at its attribute.
func faults(ctx context.Context, s schema.Schema, fields []*desired.FieldError) diag.Diagnostics {
	var diags diag.Diagnostics
	for _, f := range fields {
		diags.AddAttributeError(attributePath(ctx, s, f.Path), "Invalid "+lastAttribute(f.Path), located(f.Path, f.Detail()))
	}
	return diags
}

func lastAttribute(p desired.Path) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].Attribute != "" {
			return p[i].Attribute
		}
	}
	return "declaration"
}

// notices adds a session's verdicts.
func (r *Resource) notices(ctx context.Context, diags *diag.Diagnostics, out *session.Outcome) {
	for _, n := range out.Errors {
		if len(n.Path) == 0 {
			diags.AddError(n.Summary, sentence(n.Detail))
			continue
		}
		diags.AddAttributeError(attributePath(ctx, r.spec, n.Path), n.Summary, located(n.Path, n.Detail))
	}
	for _, n := range out.Warnings {
		if len(n.Path) == 0 {
			diags.AddWarning(n.Summary, sentence(n.Detail))
			continue
		}
		diags.AddAttributeWarning(attributePath(ctx, r.spec, n.Path), n.Summary, located(n.Path, n.Detail))
	}
	r.away(diags)
}

// away says once that the agent could not be asked.
func (r *Resource) away(diags *diag.Diagnostics) {
	if n, news := r.session.Away(); news {
		diags.AddWarning(n.Summary, n.Detail)
	}
}

// unmet lists the conditions that are not true, each with why; what to do is in the conditions' messages (R4).
func unmet(d *api.Document) string {
	if d == nil {
		return "  nothing was observed yet"
	}
	var lines []string
	for _, c := range d.Status.Conditions {
		if now := d.Status.Conditions.Get(c.Type, d.Revision); now.Status != desired.True {
			lines = append(lines, fmt.Sprintf("  %s is %s, %s: %s", now.Type, now.Status, now.Reason, now.Message))
		}
	}
	if len(lines) == 0 {
		return "  the agent has not observed it yet; is `postern run` at work? `postern status` shows what it does"
	}
	return strings.Join(lines, "\n")
}

// located names a nested attribute in the text: Terraform points at no more than the line of the resource then.
func located(p desired.Path, detail string) string {
	if text := p.String(); len(p) > 1 && !strings.HasPrefix(detail, text) {
		detail = text + ": " + detail
	}
	return sentence(detail)
}

func sentence(s string) string {
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "}") {
		return s
	}
	return s + "."
}
