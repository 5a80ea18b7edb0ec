package tfx

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/posterndev/terraform-provider-postern/internal/api"
)

// Delete implements resource.Resource: it asks for the end, and waits until nothing of the object is left (P11).
//
// One case is left as it is. A creation that ends in an error, such as a wait that ran out, has Terraform mark the object
// as tainted: a provider cannot prevent it other than by hiding the error. Terraform then plans to delete and create it. But
// the object is what was declared, and its device may be serving already: to delete it would give it another address for
// nothing. So the deletion is skipped and the creation goes on with what is there.
//
// How it is told from a deletion that is meant: Terraform hands a deletion the private state of the plan that it is part of.
// A destroy's, and a replacement's for a changed attribute or by -replace, have the memory that every state of ours has.
// A tainted object is planned as if nothing was there before, so its plan has none, and has the mark that ModifyPlan gives to
// such plans. Without the mark the object is deleted.
func (r *Resource) Delete(ctx context.Context, q resource.DeleteRequest, a *resource.DeleteResponse) {
	key, err := r.priorKey(ctx, q.State)
	if err != nil || key == nil {
		a.Diagnostics.AddError("Reading the state", fmt.Sprintf("the id cannot be read: %v", err))
		return
	}
	if createdFromNothing(ctx, q.Private) {
		r.session.Spare(*key)
		return
	}
	client, err := r.session.Client()
	if err != nil {
		a.Diagnostics.AddError("Reaching the agent", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout(ctx, q.State, timeouts.Value.Delete, &a.Diagnostics))
	defer cancel()
	if err := client.Delete(ctx, *key); err != nil {
		if !errors.Is(err, api.ErrNotFound) {
			a.Diagnostics.Append(explain(ctx, r.spec, "Deleting "+key.String(), err)...)
		}
		return
	}
	last, err := client.WaitGone(ctx, *key)
	switch {
	case err == nil || errors.Is(err, api.ErrNotFound):
	case errors.Is(err, context.DeadlineExceeded):
		a.Diagnostics.AddError(fmt.Sprintf("%s is not gone yet", key), fmt.Sprintf(
			"The time ran out (timeouts.delete). The agent goes on with the deletion, and the next apply waits for it again.\n\n%s", unmet(latest(ctx, client, *key, last))))
	default:
		a.Diagnostics.Append(explain(ctx, r.spec, "Deleting "+key.String(), err)...)
	}
}
