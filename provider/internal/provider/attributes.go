package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

// replaces is for attributes whose change makes another object.
func replaces() []planmodifier.String {
	return []planmodifier.String{stringplanmodifier.RequiresReplace()}
}

func nameAttribute(what, example string) schema.Attribute {
	return schema.StringAttribute{
		Required: true, PlanModifiers: replaces(),
		MarkdownDescription: "The name of the " + what + ", for example `\"" + example + "\"`: 1 to 63 lower-case letters, digits and inner hyphens. " +
			"Another name replaces it.",
	}
}

var conditionTypes = map[string]attr.Type{
	"type": types.StringType, "status": types.StringType, "reason": types.StringType, "message": types.StringType,
}

// reported is the computed attributes of every kind.
func reported(more map[string]schema.Attribute, types string) map[string]schema.Attribute {
	more[tfx.AttrReady] = schema.BoolAttribute{
		Computed:            true,
		MarkdownDescription: "Whether the condition `Ready` is true, as it was last read.",
	}
	more[tfx.AttrConditions] = schema.ListNestedAttribute{
		Computed: true,
		MarkdownDescription: "What was last observed, in the order of the types: " + types + ". It is observed and never planned: a plan is empty " +
			"although a message has changed.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"type":    schema.StringAttribute{Computed: true, MarkdownDescription: "What the condition speaks of."},
			"status":  schema.StringAttribute{Computed: true, MarkdownDescription: "`\"True\"`, `\"False\"` or `\"Unknown\"`."},
			"reason":  schema.StringAttribute{Computed: true, MarkdownDescription: "Why, in one word: `\"OK\"`, or what is wrong."},
			"message": schema.StringAttribute{Computed: true, MarkdownDescription: "What was seen, and what to do where something is wrong."},
		}},
	}
	return more
}

// report gives the values of reported.
func report(d *api.Document, more map[string]attr.Value) map[string]attr.Value {
	conditions := make([]attr.Value, 0, len(d.Status.Conditions))
	for _, c := range d.Status.Conditions {
		now := d.Status.Conditions.Get(c.Type, d.Revision)
		conditions = append(conditions, types.ObjectValueMust(conditionTypes, map[string]attr.Value{
			"type": types.StringValue(string(now.Type)), "status": types.StringValue(string(now.Status)),
			"reason": types.StringValue(string(now.Reason)), "message": types.StringValue(now.Message),
		}))
	}
	more[tfx.AttrReady] = types.BoolValue(d.Ready().Status == desired.True)
	more[tfx.AttrConditions] = types.ListValueMust(types.ObjectType{AttrTypes: conditionTypes}, conditions)
	return more
}

// text is s as a plan shows it: unknown where it was made from what is not known, null where it is empty.
func text(s string) types.String {
	switch {
	case !desired.Known(s):
		return types.StringUnknown()
	case s == "":
		return types.StringNull()
	}
	return types.StringValue(s)
}

// texts is a list, null where it was not observed.
func texts(list []string) types.List {
	if list == nil {
		return types.ListNull(types.StringType)
	}
	values := make([]attr.Value, len(list))
	for i, s := range list {
		if !desired.Known(s) {
			return types.ListUnknown(types.StringType)
		}
		values[i] = types.StringValue(s)
	}
	return types.ListValueMust(types.StringType, values)
}
