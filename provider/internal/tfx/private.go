package tfx

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// The keys of private state.
const (
	// privateObject holds a memory. Every state of ours has it.
	privateObject = "object"
	// privateCreation marks a plan that was made with nothing before it. See Resource.Delete.
	privateCreation = "creation"
)

// memory is what the state remembers of an object and does not show.
type memory struct {
	// Revision is the object's revision when it was last read.
	Revision int64 `json:"revision"`
	// Unfinished is set where the last apply ended before what it waited for was true: the next one waits again.
	Unfinished bool `json:"unfinished,omitzero"`
}

// private is Terraform's private state, which the framework gives in a type of its internals.
type private interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// recall reads the memory; it is not there for an object that was never read.
func recall(ctx context.Context, p private) (memory, bool) {
	value, diags := p.GetKey(ctx, privateObject)
	if diags.HasError() || len(value) == 0 {
		return memory{}, false
	}
	var m memory
	return m, json.Unmarshal(value, &m) == nil
}

func (m memory) keep(ctx context.Context, p private) diag.Diagnostics {
	value, err := json.Marshal(m)
	if err != nil {
		return diag.Diagnostics{diag.NewErrorDiagnostic("Writing private state", err.Error())}
	}
	diags := p.SetKey(ctx, privateObject, value)
	diags.Append(p.SetKey(ctx, privateCreation, nil)...)
	return diags
}

func createdFromNothing(ctx context.Context, p private) bool {
	value, diags := p.GetKey(ctx, privateCreation)
	_, known := recall(ctx, p)
	return !diags.HasError() && len(value) > 0 && !known
}
