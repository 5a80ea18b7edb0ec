package tfx

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

func text(s string) tftypes.Value { return tftypes.NewValue(tftypes.String, s) }

func unknown(t tftypes.Type) tftypes.Value { return tftypes.NewValue(t, tftypes.UnknownValue) }

var (
	texts = tftypes.List{ElementType: tftypes.String}
	set   = tftypes.Set{ElementType: tftypes.String}
	part  = tftypes.Object{AttributeTypes: map[string]tftypes.Type{"label": tftypes.String, "on": tftypes.Bool, "port": tftypes.Number}}
	whole = tftypes.Object{AttributeTypes: map[string]tftypes.Type{
		"name": tftypes.String, "list": texts, "set": set, "parts": tftypes.Map{ElementType: part},
	}}
)

func TestKnown(t *testing.T) {
	v := tftypes.NewValue(whole, map[string]tftypes.Value{
		"name": unknown(tftypes.String),
		"list": tftypes.NewValue(texts, []tftypes.Value{text("a"), unknown(tftypes.String)}),
		"set":  tftypes.NewValue(set, []tftypes.Value{text("a"), unknown(tftypes.String)}),
		"parts": tftypes.NewValue(tftypes.Map{ElementType: part}, map[string]tftypes.Value{
			"x": unknown(part),
			"y": tftypes.NewValue(part, map[string]tftypes.Value{"label": text("l"), "on": unknown(tftypes.Bool), "port": tftypes.NewValue(tftypes.Number, 1)}),
		}),
	})
	known, paths, err := Known(v)
	if err != nil || !known.IsFullyKnown() {
		t.Fatalf("%s, %v", known, err)
	}
	for _, test := range []struct {
		at   desired.Path
		want bool
	}{
		{desired.At("name"), true},
		{desired.At("list"), false},
		{desired.At("list").Index(0), false},
		{desired.At("list").Index(1), true},
		{desired.At("set"), false}, // its unknown element is told by its text
		{desired.At("set").Index(1), false},
		{desired.At("parts"), false},
		{desired.At("parts").Key("x"), true},
		{desired.At("parts").Key("x").Attribute("port"), true},
		{desired.At("parts").Key("y").Attribute("on"), true},
		{desired.At("parts").Key("y").Attribute("port"), false},
	} {
		if got := paths.Covers(test.at); got != test.want {
			t.Errorf("%s is unknown: %v", test.at, got)
		}
	}
}

// What a plan showed stays, what it did not know is filled, and what nobody knows is absent.
func TestSettle(t *testing.T) {
	parts := func(label, on, port tftypes.Value) tftypes.Value {
		return tftypes.NewValue(part, map[string]tftypes.Value{"label": label, "on": on, "port": port})
	}
	number, yes := tftypes.NewValue(tftypes.Number, 1), tftypes.NewValue(tftypes.Bool, true)
	for name, test := range map[string]struct{ planned, observed, want tftypes.Value }{
		"known":    {text("a"), text("b"), text("a")},
		"unknown":  {unknown(tftypes.String), text("b"), text("b")},
		"neither":  {unknown(tftypes.String), unknown(tftypes.String), tftypes.NewValue(tftypes.String, nil)},
		"null":     {tftypes.NewValue(tftypes.String, nil), text("b"), tftypes.NewValue(tftypes.String, nil)},
		"in part":  {parts(text("a"), unknown(tftypes.Bool), unknown(tftypes.Number)), parts(text("b"), yes, number), parts(text("a"), yes, number)},
		"not seen": {parts(text("a"), unknown(tftypes.Bool), number), tftypes.NewValue(part, nil), parts(text("a"), tftypes.NewValue(tftypes.Bool, nil), number)},
	} {
		if got := settle(test.planned, test.observed); !got.Equal(test.want) {
			t.Errorf("%s: %s and %s give %s", name, test.planned, test.observed, got)
		}
	}
}

// A path goes as far as the schema and no further than a set.
func TestAttributePath(t *testing.T) {
	s := schema.Schema{Attributes: map[string]schema.Attribute{
		"set": schema.SetAttribute{Optional: true, ElementType: types.StringType},
		"parts": schema.MapNestedAttribute{Optional: true, NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"list": schema.ListAttribute{Optional: true, ElementType: types.StringType},
		}}},
	}}
	for want, at := range map[string]desired.Path{
		"set":                    desired.At("set").Index(3),
		`parts["x"].list[1]`:     desired.At("parts").Key("x").Attribute("list").Index(1),
		`parts["x"]`:             desired.At("parts").Key("x").Attribute("newer"),
		`parts["with \"quotes"]`: desired.At("parts").Key(`with "quotes`),
	} {
		if got := attributePath(t.Context(), s, at).String(); got != want {
			t.Errorf("%s is at %s, not at %s", at, got, want)
		}
	}
}
