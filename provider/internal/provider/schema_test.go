package provider

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/provider/internal/tfx"
)

// Each kind is a resource, and each resource is a kind.
func TestEachKindHasAResource(t *testing.T) {
	var declared, offered []desired.Kind
	for _, info := range desired.Kinds() {
		declared = append(declared, info.Kind)
	}
	for _, k := range kinds() {
		offered = append(offered, k.Kind)
	}
	slices.Sort(declared)
	slices.Sort(offered)
	if !slices.Equal(declared, offered) {
		t.Errorf("the kinds are %v and the resources %v", declared, offered)
	}
}

// A kind's struct and its attributes are equal, nested ones too, in names and types; what must be there and what may be
// absent is so in both.
func TestSchemaEqualsStruct(t *testing.T) {
	for _, k := range kinds() {
		info, _ := desired.Lookup(k.Kind)
		compare(t, string(k.Kind), reflect.TypeOf(info.New()).Elem(), k.Spec)
		for name := range k.Computed {
			if _, both := k.Spec[name]; both {
				t.Errorf("%s.%s is declared and computed", k.Kind, name)
			}
		}
		for _, name := range []string{tfx.AttrReady, tfx.AttrConditions} {
			if _, ok := k.Computed[name]; !ok {
				t.Errorf("%s has no %s", k.Kind, name)
			}
		}
	}
}

// requiredBelow lists nested attributes that must be there and that the schema does not call required, see tfx.
var requiredBelow = map[string]bool{"ingress.exposes.backend": true, "ingress.exposes.backend.targets": true}

func compare(t *testing.T, at string, s reflect.Type, attributes map[string]schema.Attribute) {
	t.Helper()
	seen := map[string]bool{}
	for i := range s.NumField() {
		field := s.Field(i)
		name := field.Tag.Get("tfsdk")
		path := at + "." + name
		seen[name] = true
		a, ok := attributes[name]
		if !ok {
			t.Errorf("%s is in the struct and not in the schema", path)
			continue
		}
		if wire, _, _ := strings.Cut(field.Tag.Get("json"), ","); wire != name && (wire != "-" || !a.IsWriteOnly()) {
			t.Errorf("%s is %q in JSON", path, wire)
		}
		of, optional := field.Type, false
		if of.Kind() == reflect.Pointer {
			of, optional = of.Elem(), true
		}
		if (of.Kind() == reflect.Slice || of.Kind() == reflect.Map) && strings.Contains(field.Tag.Get("json"), ",omitzero") {
			optional = true
		}
		if optional == a.IsRequired() && !requiredBelow[path] {
			t.Errorf("%s is optional in the struct: %v, and required in the schema: %v", path, optional, a.IsRequired())
		}
		if a.IsComputed() {
			t.Errorf("%s is declared and computed", path)
		}
		compareType(t, path, of, a)
	}
	for name := range attributes {
		if !seen[name] {
			t.Errorf("%s.%s is in the schema and not in the struct", at, name)
		}
	}
}

func compareType(t *testing.T, path string, of reflect.Type, a schema.Attribute) {
	t.Helper()
	want := map[reflect.Kind]string{
		reflect.String: "StringAttribute", reflect.Bool: "BoolAttribute", reflect.Int64: "Int64Attribute", reflect.Struct: "SingleNestedAttribute",
		reflect.Map: "MapNestedAttribute", reflect.Slice: "ListAttribute or SetAttribute",
	}[of.Kind()]
	if got := reflect.TypeOf(a).Name(); !strings.Contains(want, got) {
		t.Errorf("%s is a %s in the struct and a %s in the schema", path, of, got)
		return
	}
	switch a := a.(type) {
	case schema.SingleNestedAttribute:
		compare(t, path, of, a.Attributes)
	case schema.MapNestedAttribute:
		compare(t, path, of.Elem(), a.NestedObject.Attributes)
	}
	if secret := of == reflect.TypeFor[desired.Secret](); secret != a.IsWriteOnly() || secret && !a.IsSensitive() {
		t.Errorf("%s is a secret: %v, write-only: %v, sensitive: %v", path, secret, a.IsWriteOnly(), a.IsSensitive())
	}
}

// Every attribute of every schema has a description that ends a sentence, and an optional one says its default or that it is needed.
func TestEveryAttributeIsDocumented(t *testing.T) {
	schemas, err := providerserver.NewProtocol6(New("test", environment("", "")))().GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(schemas.Diagnostics) > 0 {
		t.Fatal(err, schemas.Diagnostics)
	}
	documented(t, "provider", schemas.Provider.Block.Attributes)
	for name, s := range schemas.ResourceSchemas {
		documented(t, name, s.Block.Attributes)
	}
	for name, s := range schemas.DataSourceSchemas {
		documented(t, "data."+name, s.Block.Attributes)
	}
}

func documented(t *testing.T, at string, attributes []*tfprotov6.SchemaAttribute) {
	t.Helper()
	for _, a := range attributes {
		path := at + "." + a.Name
		if a.Description == "" || !strings.HasSuffix(a.Description, ".") {
			t.Errorf("%s is described as %q", path, a.Description)
		}
		known := []string{"default", "needed", "must be there", "how long", "comes from", "comes with"}
		if a.Optional && !a.WriteOnly && !slices.ContainsFunc(known, func(w string) bool { return strings.Contains(strings.ToLower(a.Description), w) }) {
			t.Errorf("%s is optional and does not say what holds without it: %q", path, a.Description)
		}
		if a.NestedType != nil {
			documented(t, path, a.NestedType.Attributes)
		}
	}
}

// The data source has every attribute of its resource but what is about writing.
func TestDataSourceEqualsResource(t *testing.T) {
	schemas, err := providerserver.NewProtocol6(New("test", environment("", "")))().GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	names := func(s *tfprotov6.Schema) []string {
		var out []string
		for _, a := range s.Block.Attributes {
			if a.Name != "timeouts" && a.Name != "wait_for" {
				out = append(out, a.Name)
			}
		}
		slices.Sort(out)
		return out
	}
	r, d := names(schemas.ResourceSchemas[kindIngress]), names(schemas.DataSourceSchemas[kindIngress])
	if !slices.Equal(r, d) {
		t.Errorf("the resource has %v and the data source %v", r, d)
	}
}
