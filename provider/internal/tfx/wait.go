package tfx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// finish saves the state, and only then waits (R4).
//
// Where the wait runs out, the error fails the apply, as it must: what depends on the object is not built on sand. For an
// update that is all: the state is saved, and it remembers that it is unfinished, so that the next plan shows ready as
// known after apply and the next apply waits again. For a creation Terraform marks the object as tainted, whatever a
// provider does, and plans to replace it. See Delete for why that replacement goes on with the same device.
func (w *writing) finish(ctx context.Context, d *api.Document, state *tfsdk.State, p private) {
	condition, waits := w.awaited(ctx)
	m := memory{Revision: d.Revision, Unfinished: waits}
	w.save(ctx, d, m, state, p)
	if !waits || w.diags.HasError() {
		return
	}
	last, err := w.reach(ctx, condition, d.Revision)
	if err != nil {
		last = latest(ctx, w.client, w.key, last)
	}
	if last == nil || last.Revision < d.Revision {
		last = d
	}
	m.Unfinished = err != nil
	w.save(ctx, last, m, state, p)
	if err != nil {
		w.missed(condition, last, err)
	}
}

// awaited is the condition to wait for. A plan that shows ready as known changes nothing to wait for.
func (w *writing) awaited(ctx context.Context) (desired.ConditionType, bool) {
	var ready types.Bool
	w.diags.Append(w.plan.GetAttribute(ctx, path.Root(AttrReady), &ready)...)
	if !ready.IsUnknown() {
		return "", false
	}
	return w.waitFor(ctx, tfsdk.State{Raw: w.plan.Raw, Schema: w.plan.Schema})
}

// waitFor is the condition that wait_for names.
func (r *Resource) waitFor(ctx context.Context, s tfsdk.State) (desired.ConditionType, bool) {
	var word types.String
	if diags := s.GetAttribute(ctx, path.Root(attrWaitFor), &word); diags.HasError() || word.IsNull() {
		word = types.StringValue(WaitReady)
	}
	condition, ok := r.kind.Waits[word.ValueString()]
	return condition, ok
}

// reach waits for a condition, through a restart of the agent too.
func (w *writing) reach(ctx context.Context, condition desired.ConditionType, revision int64) (*api.Document, error) {
	const pause = 500 * time.Millisecond
	var last *api.Document
	for {
		d, err := w.client.WaitFor(ctx, w.key, condition, revision)
		if d != nil {
			last = d
		}
		if !errors.Is(err, api.ErrUnavailable) && !errors.Is(err, api.ErrBusy) {
			return last, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return last, errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
	}
}

// latest is the document as it is now, after the time for waiting has run out, so that what is said of it is not stale.
func latest(ctx context.Context, client *api.Client, key desired.Key, last *api.Document) *api.Document {
	const grace = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if d, err := client.Get(ctx, key); err == nil {
		return d
	}
	return last
}

// missed says why the wait ended without what it waited for.
func (w *writing) missed(condition desired.ConditionType, last *api.Document, err error) {
	doing := fmt.Sprintf("%s is not %s", w.key, wordOf(w.kind.Waits, condition))
	why := "the time ran out (timeouts)"
	if !errors.Is(err, context.DeadlineExceeded) {
		why = err.Error()
	}
	next := "It is declared and kept in the state, and the agent goes on. The next apply waits again; nothing is replaced."
	if w.creating {
		next = "It is declared and kept in the state, and the agent goes on. Terraform marks what it could not finish creating as tainted and " +
			"will speak of a replacement; the next apply goes on with the same object all the same, its device and addresses included. " +
			"`terraform untaint` has the plan say so too. To have it really replaced, use -replace."
	}
	w.diags.AddError(doing, fmt.Sprintf("Waiting for %s ended: %s.\n\n%s\n\n%s", condition, why, unmet(last), next))
}

func wordOf(waits map[string]desired.ConditionType, condition desired.ConditionType) string {
	for word, c := range waits {
		if c == condition {
			return word
		}
	}
	return string(condition)
}

// save writes the state: the plan, and what was observed where the plan did not know.
func (w *writing) save(ctx context.Context, d *api.Document, m memory, state *tfsdk.State, p private) {
	w.diags.Append(w.saved(ctx, d, state)...)
	w.diags.Append(m.keep(ctx, p)...)
}

func (w *writing) saved(ctx context.Context, d *api.Document, state *tfsdk.State) diag.Diagnostics {
	var diags diag.Diagnostics
	planned, err := fields(w.plan.Raw)
	if err != nil {
		diags.AddError("Writing the state", err.Error())
		return diags
	}
	observed, err := raw(ctx, w.kind.Observe(d))
	if err != nil {
		diags.AddError("Writing the state", err.Error())
		return diags
	}
	for name := range w.kind.Computed {
		planned[name] = settle(planned[name], observed[name])
	}
	id, err := types.StringValue(w.key.ID()).ToTerraformValue(ctx)
	if err != nil {
		diags.AddError("Writing the state", err.Error())
		return diags
	}
	planned[attrID] = id
	state.Raw = object(w.plan.Raw.Type(), planned)
	return diags
}
