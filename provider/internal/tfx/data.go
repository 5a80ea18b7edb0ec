package tfx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// DataSource is a kind as a data source: found by name and namespace, and everything else computed.
type DataSource struct {
	resource *Resource
	doc      string
}

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource makes the data source of a kind.
func NewDataSource(kind Kind, doc string) *DataSource {
	return &DataSource{resource: NewResource(kind), doc: doc}
}

// Metadata implements datasource.DataSource.
func (d *DataSource) Metadata(_ context.Context, q datasource.MetadataRequest, a *datasource.MetadataResponse) {
	a.TypeName = q.ProviderTypeName + "_" + string(d.resource.kind.Kind)
}

// Schema implements datasource.DataSource.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, a *datasource.SchemaResponse) {
	kind := d.resource.kind
	attributes := map[string]schema.Attribute{attrID: schema.StringAttribute{MarkdownDescription: "The object's id: " + idForm(kind.Kind) + "."}}
	maps.Copy(attributes, kind.Spec)
	maps.Copy(attributes, kind.Computed)
	a.Schema = dschema.Schema{MarkdownDescription: d.doc, Attributes: computed(attributes)}
	a.Schema.Attributes["name"] = dschema.StringAttribute{Required: true, MarkdownDescription: "The name of the " + string(kind.Kind) + "."}
	if info, _ := desired.Lookup(kind.Kind); info.Namespace != desired.NamespaceNever {
		text := "The namespace that it lies in."
		if info.Namespace == desired.NamespaceAlways {
			text += fmt.Sprintf(" Default: `%q`.", desired.DefaultNamespace)
		}
		a.Schema.Attributes["namespace"] = dschema.StringAttribute{Optional: true, MarkdownDescription: text}
	}
}

// computed turns a resource's attributes into those of a data source. What is write-only is left out.
func computed(attributes map[string]schema.Attribute) map[string]dschema.Attribute {
	out := make(map[string]dschema.Attribute, len(attributes))
	for name, a := range attributes {
		if a.IsWriteOnly() {
			continue
		}
		doc := a.GetMarkdownDescription()
		switch a := a.(type) {
		case schema.BoolAttribute:
			out[name] = dschema.BoolAttribute{Computed: true, MarkdownDescription: doc}
		case schema.Int64Attribute:
			out[name] = dschema.Int64Attribute{Computed: true, MarkdownDescription: doc}
		case schema.ListAttribute:
			out[name] = dschema.ListAttribute{Computed: true, MarkdownDescription: doc, ElementType: a.ElementType}
		case schema.SetAttribute:
			out[name] = dschema.SetAttribute{Computed: true, MarkdownDescription: doc, ElementType: a.ElementType}
		case schema.SingleNestedAttribute:
			out[name] = dschema.SingleNestedAttribute{Computed: true, MarkdownDescription: doc, Attributes: computed(a.Attributes)}
		case schema.MapNestedAttribute:
			out[name] = dschema.MapNestedAttribute{Computed: true, MarkdownDescription: doc, NestedObject: nested(a.NestedObject)}
		case schema.ListNestedAttribute:
			out[name] = dschema.ListNestedAttribute{Computed: true, MarkdownDescription: doc, NestedObject: nested(a.NestedObject)}
		default:
			out[name] = dschema.StringAttribute{Computed: true, MarkdownDescription: doc}
		}
	}
	return out
}

func nested(o schema.NestedAttributeObject) dschema.NestedAttributeObject {
	return dschema.NestedAttributeObject{Attributes: computed(o.Attributes)}
}

// Configure implements datasource.DataSourceWithConfigure.
func (d *DataSource) Configure(_ context.Context, q datasource.ConfigureRequest, a *datasource.ConfigureResponse) {
	if q.ProviderData == nil {
		return
	}
	s, ok := sessionOf(q.ProviderData)
	if !ok {
		a.Diagnostics.AddError("Configuring the data source", fmt.Sprintf("the provider's data is a %T; report it to the developers", q.ProviderData))
		return
	}
	d.resource.session = s
}

// Read implements datasource.DataSource.
func (d *DataSource) Read(ctx context.Context, q datasource.ReadRequest, a *datasource.ReadResponse) {
	r := d.resource
	var name, namespace types.String
	a.Diagnostics.Append(q.Config.GetAttribute(ctx, path.Root("name"), &name)...)
	if _, has := q.Config.Schema.GetAttributes()["namespace"]; has {
		a.Diagnostics.Append(q.Config.GetAttribute(ctx, path.Root("namespace"), &namespace)...)
	}
	id := name.ValueString()
	if !namespace.IsNull() {
		id = namespace.ValueString() + "/" + id
	}
	key, err := desired.ParseID(r.kind.Kind, id)
	if err != nil {
		a.Diagnostics.AddError("Reading postern_"+string(r.kind.Kind), err.Error())
		return
	}
	found, err := r.get(ctx, key)
	if err != nil {
		a.Diagnostics.Append(explain(ctx, r.spec, "Reading "+key.String(), d.withNames(ctx, key, err))...)
		return
	}
	var state tfsdk.State
	before := tfsdk.State{Raw: q.Config.Raw, Schema: r.spec}
	a.Diagnostics.Append(r.observed(ctx, found, before, &state)...)
	if a.Diagnostics.HasError() {
		return
	}
	parts, err := fields(state.Raw)
	if err != nil {
		a.Diagnostics.AddError("Reading "+key.String(), err.Error())
		return
	}
	if !namespace.IsNull() {
		parts["namespace"] = tftypes.NewValue(tftypes.String, namespace.ValueString())
	} else if t, has := parts["namespace"]; has {
		parts["namespace"] = tftypes.NewValue(t.Type(), nil)
	}
	a.State.Raw = object(q.Config.Raw.Type(), parts)
}

// withNames adds the names that are there to an error about one that is not (T8).
func (d *DataSource) withNames(ctx context.Context, key desired.Key, err error) error {
	client, none := d.resource.session.Client()
	if none != nil || !errors.Is(err, api.ErrNotFound) {
		return err
	}
	there, listErr := client.List(ctx, key.Kind)
	if listErr != nil {
		return err
	}
	const most = 20
	var ids []string
	for i := range there {
		if len(ids) == most {
			ids = append(ids, "…")
			break
		}
		ids = append(ids, there[i].Key.ID())
	}
	if len(ids) == 0 {
		ids = []string{"none"}
	}
	return fmt.Errorf("%w; there is %s", err, strings.Join(ids, ", "))
}
