// Package tfx is the only place that knows how a declared object travels through Terraform: its schema, how a partly unknown
// configuration is judged, what a plan shows, what is sent to the agent, what is waited for, and what the state keeps. A
// kind brings its attributes and what is its own (Kind); the rest is written here once.
package tfx

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/session"
)

// The attributes that the envelope adds to every kind.
const (
	attrID       = "id"
	attrTimeouts = "timeouts"
	attrWaitFor  = "wait_for"
)

// The computed attributes that every kind has.
const (
	AttrReady      = "ready"
	AttrConditions = "conditions"
)

// The words of wait_for that every kind has.
const (
	WaitReady = "ready"
	WaitNone  = "none"
)

// Kind says what differs from kind to kind.
type Kind struct {
	Kind desired.Kind
	// Doc is the resource's description in Markdown.
	Doc string
	// Spec is the declaration's attributes. Their names are the struct's tfsdk tags; none is computed and none has a default,
	// since a declaration is stored as it was written.
	Spec map[string]schema.Attribute
	// Computed is what the agent reports. It has AttrReady and AttrConditions.
	Computed map[string]schema.Attribute
	// Waits leads each word of wait_for but WaitNone to the condition that it waits for.
	Waits map[string]desired.ConditionType
	// Probe has a plan ask the agent what the control plane thereof can do, where the declaration is new or changes.
	Probe bool
	// Plan gives the computed attributes that a plan shows. One that it leaves out is unknown where the object is new or
	// changes, and otherwise stays what it is. Optional.
	Plan func(*Planning) map[string]attr.Value
	// Observe gives the computed attributes of an object as the agent answers with it.
	Observe func(*api.Document) map[string]attr.Value
}

// Resource is a kind as a Terraform resource.
type Resource struct {
	kind    Kind
	spec    schema.Schema
	session *session.Session
}

var (
	_ resource.ResourceWithConfigure      = (*Resource)(nil)
	_ resource.ResourceWithValidateConfig = (*Resource)(nil)
	_ resource.ResourceWithModifyPlan     = (*Resource)(nil)
	_ resource.ResourceWithImportState    = (*Resource)(nil)
)

// NewResource makes the resource of a kind.
func NewResource(kind Kind) *Resource {
	return &Resource{kind: kind, spec: schema.Schema{Attributes: kind.Spec}}
}

// Metadata implements resource.Resource.
func (r *Resource) Metadata(_ context.Context, q resource.MetadataRequest, a *resource.MetadataResponse) {
	a.TypeName = q.ProviderTypeName + "_" + string(r.kind.Kind)
}

// Schema implements resource.Resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, a *resource.SchemaResponse) {
	attributes := map[string]schema.Attribute{
		attrID: schema.StringAttribute{
			Computed:            true,
			MarkdownDescription: "The object's id: " + idForm(r.kind.Kind) + ".",
		},
		attrTimeouts: waits(ctx),
		attrWaitFor: schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "What an apply waits for: " + strings.Join(quoted(r.words()), ", ") + ". Default: `\"ready\"`. " +
				"With `\"none\"` the apply ends once the agent has stored the declaration. How long it waits is `timeouts`.",
		},
	}
	maps.Copy(attributes, r.kind.Spec)
	maps.Copy(attributes, r.kind.Computed)
	a.Schema = schema.Schema{MarkdownDescription: r.kind.Doc, Attributes: attributes}
}

func idForm(kind desired.Kind) string {
	switch info, _ := desired.Lookup(kind); info.Namespace {
	case desired.NamespaceAlways:
		return "`namespace/name`, for example `shop-dev/shop`"
	case desired.NamespaceOptional:
		return "`name`, or `namespace/name` where it has a namespace"
	default:
		return "its `name`"
	}
}

func waits(ctx context.Context) schema.Attribute {
	const text = " A duration such as `90s` or `10m`. Default: `5m`."
	a, ok := timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Delete: true,
		CreateDescription: "How long a creation may take, with what it waits for." + text,
		UpdateDescription: "How long a change may take, with what it waits for." + text,
		DeleteDescription: "How long a deletion may take, until nothing of the object is left." + text,
	}).(schema.SingleNestedAttribute)
	if !ok {
		panic("the timeouts attribute is nested") // a change of the module that tests would show
	}
	a.MarkdownDescription = "How long each operation may take."
	return a
}

// words lists the values of wait_for, the default first.
func (r *Resource) words() []string {
	words := slices.DeleteFunc(slices.Sorted(maps.Keys(r.kind.Waits)), func(w string) bool { return w == WaitReady })
	return append(append([]string{WaitReady}, words...), WaitNone)
}

func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = fmt.Sprintf("`%q`", w)
	}
	return out
}

// Configure implements resource.ResourceWithConfigure.
func (r *Resource) Configure(_ context.Context, q resource.ConfigureRequest, a *resource.ConfigureResponse) {
	if q.ProviderData == nil {
		return
	}
	s, ok := sessionOf(q.ProviderData)
	if !ok {
		a.Diagnostics.AddError("Configuring the resource", fmt.Sprintf("the provider's data is a %T; report it to the developers", q.ProviderData))
		return
	}
	r.session = s
}

func sessionOf(data any) (*session.Session, bool) {
	s, ok := data.(*session.Session)
	return s, ok
}

// SameOr keeps a change between absence and the default from replacing an object: both mean the same.
func SameOr(otherwise string) planmodifier.String {
	const text = "Another value replaces the object."
	return stringplanmodifier.RequiresReplaceIf(
		func(_ context.Context, q planmodifier.StringRequest, a *stringplanmodifier.RequiresReplaceIfFuncResponse) {
			was, is := q.StateValue.ValueString(), q.PlanValue.ValueString()
			if q.StateValue.IsNull() {
				was = otherwise
			}
			if q.PlanValue.IsNull() {
				is = otherwise
			}
			a.RequiresReplace = was != is || q.PlanValue.IsUnknown()
		}, text, text)
}
