package provider

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// fromJSON makes a value of a type. What is absent is null; a set is in the order that Terraform keeps.
func fromJSON(t tftypes.Type, v any) tftypes.Value {
	if v == nil {
		return tftypes.NewValue(t, nil)
	}
	switch t := t.(type) {
	case tftypes.Object:
		in, parts := v.(map[string]any), map[string]tftypes.Value{}
		for name, of := range t.AttributeTypes {
			parts[name] = fromJSON(of, in[name])
		}
		return tftypes.NewValue(t, parts)
	case tftypes.Map:
		parts := map[string]tftypes.Value{}
		for name, e := range v.(map[string]any) {
			parts[name] = fromJSON(t.ElementType, e)
		}
		return tftypes.NewValue(t, parts)
	case tftypes.List:
		return tftypes.NewValue(t, elements(t.ElementType, v.([]any)))
	case tftypes.Set:
		in := slices.Clone(v.([]any))
		slices.SortFunc(in, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return tftypes.NewValue(t, elements(t.ElementType, slices.Compact(in)))
	}
	if n, ok := v.(float64); ok {
		return tftypes.NewValue(t, big.NewFloat(n))
	}
	return tftypes.NewValue(t, v)
}

func elements(t tftypes.Type, in []any) []tftypes.Value {
	out := make([]tftypes.Value, len(in))
	for i, e := range in {
		out[i] = fromJSON(t, e)
	}
	return out
}

// unkept finds the first value that promised has as known and actual does not have; empty where there is none.
func unkept(promised, actual tftypes.Value) string {
	diffs, err := promised.Diff(actual)
	if err != nil {
		return err.Error()
	}
	for _, d := range diffs {
		if d.Value1 != nil && d.Value1.IsFullyKnown() && !covered(promised, d.Path) {
			return fmt.Sprintf("%s: %s became %s", d.Path, d.Value1, d.Value2)
		}
		if d.Value1 == nil && !covered(promised, d.Path) {
			return fmt.Sprintf("%s: nothing became %s", d.Path, d.Value2)
		}
	}
	return ""
}

// covered reports whether the value at a path, or what it lies in, is unknown.
func covered(v tftypes.Value, p *tftypes.AttributePath) bool {
	for n := len(p.Steps()); n >= 0; n-- {
		if n > 0 {
			if _, element := p.Steps()[n-1].(tftypes.ElementKeyValue); element {
				set, _, err := tftypes.WalkAttributePath(v, tftypes.NewAttributePathWithSteps(p.Steps()[:n-1]))
				if value, ok := set.(tftypes.Value); err == nil && ok && !value.IsFullyKnown() {
					return true // what an unknown element becomes is not known
				}
				continue
			}
		}
		found, _, err := tftypes.WalkAttributePath(v, tftypes.NewAttributePathWithSteps(p.Steps()[:n]))
		if err != nil {
			continue
		}
		if value, ok := found.(tftypes.Value); ok && !value.IsKnown() {
			return true
		}
	}
	return false
}

// dump writes a value so that a person can read it.
func dump(v tftypes.Value) string {
	switch {
	case !v.IsKnown():
		return "?"
	case v.IsNull():
		return "null"
	}
	var parts map[string]tftypes.Value
	var list []tftypes.Value
	var text string
	switch {
	case v.As(&parts) == nil:
		var out []string
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if !parts[name].IsKnown() || !parts[name].IsNull() {
				out = append(out, name+"="+dump(parts[name]))
			}
		}
		return "{" + strings.Join(out, " ") + "}"
	case v.As(&list) == nil:
		var out []string
		for _, e := range list {
			out = append(out, dump(e))
		}
		return "[" + strings.Join(out, " ") + "]"
	case v.As(&text) == nil:
		return text
	}
	return strings.TrimPrefix(v.String(), "tftypes.")
}
