package tfx

import (
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// holes finds null where a declaration cannot have it: in collections, and for attributes that must be there.
//
// A nested attribute that must be there is optional in the schema, and found missing here: the framework (v1.19) calls a
// required attribute missing too where the map element that it lies in is unknown, and so refuses
// exposes = { web = <known after apply> }.
func (r *Resource) holes(spec tftypes.Value) []*desired.FieldError {
	info, ok := desired.Lookup(r.kind.Kind)
	if !ok {
		return nil
	}
	return holes(reflect.TypeOf(info.New()).Elem(), spec, nil)
}

func holes(t reflect.Type, v tftypes.Value, at desired.Path) []*desired.FieldError {
	if !v.IsKnown() {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		if v.IsNull() {
			return nil
		}
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		return structHoles(t, v, at)
	case reflect.Map:
		var out []*desired.FieldError
		var parts map[string]tftypes.Value
		if err := v.As(&parts); err == nil {
			for name, part := range parts {
				out = append(out, element(t.Elem(), part, at.Key(name))...)
			}
		}
		return out
	case reflect.Slice:
		var out []*desired.FieldError
		var parts []tftypes.Value
		if err := v.As(&parts); err == nil {
			for i, part := range parts {
				out = append(out, element(t.Elem(), part, at.Index(i))...)
			}
		}
		return out
	}
	if v.IsNull() {
		return missing(at)
	}
	return nil
}

func structHoles(t reflect.Type, v tftypes.Value, at desired.Path) []*desired.FieldError {
	if v.IsNull() {
		return missing(at)
	}
	parts, err := fields(v)
	if err != nil {
		return nil
	}
	var out []*desired.FieldError
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("tfsdk")
		if part, ok := parts[name]; ok {
			out = append(out, holes(t.Field(i).Type, part, at.Attribute(name))...)
		}
	}
	return out
}

func element(t reflect.Type, v tftypes.Value, at desired.Path) []*desired.FieldError {
	if v.IsKnown() && v.IsNull() {
		return []*desired.FieldError{{Path: at, Rule: fmt.Sprintf("%s is null, and no element may be", at), Remedy: "leave it out"}}
	}
	return holes(t, v, at)
}

func missing(at desired.Path) []*desired.FieldError {
	return []*desired.FieldError{{Path: at, Rule: fmt.Sprintf("%s is needed", at), Remedy: "add it"}}
}

// mayBeAbsent reports whether a declaration can go without the value at a path.
func (r *Resource) mayBeAbsent(p *tftypes.AttributePath) bool {
	info, ok := desired.Lookup(r.kind.Kind)
	if !ok {
		return false
	}
	t, field := reflect.TypeOf(info.New()).Elem(), false
	for _, step := range p.Steps() {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		name, attribute := step.(tftypes.AttributeName)
		field = attribute
		switch {
		case !attribute && (t.Kind() == reflect.Map || t.Kind() == reflect.Slice):
			t = t.Elem()
		case attribute && t.Kind() == reflect.Struct:
			f, ok := fieldOf(t, string(name))
			if !ok {
				return false
			}
			t = f.Type
		default:
			return false
		}
	}
	return field && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Map || t.Kind() == reflect.Slice)
}

func fieldOf(t reflect.Type, attribute string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("tfsdk") == attribute {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
