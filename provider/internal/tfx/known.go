package tfx

import (
	"math/big"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Unknown is what was unknown in a declaration.
type Unknown []desired.Path

// Covers reports whether the value at a path is not known: it or what it lies in is unknown. A verdict there says nothing yet.
func (u Unknown) Covers(p desired.Path) bool {
	for _, unknown := range u {
		if within(p, unknown) {
			return true
		}
	}
	return false
}

// Any reports whether anything was unknown.
func (u Unknown) Any() bool { return len(u) > 0 }

// within reports whether p is root or lies below it.
func within(p, root desired.Path) bool {
	if len(p) < len(root) {
		return false
	}
	for i, s := range root {
		if p[i].Attribute != s.Attribute || desired.Value(p[i].Key, "") != desired.Value(s.Key, "") ||
			desired.Value(p[i].Index, -1) != desired.Value(s.Index, -1) {
			return false
		}
	}
	return true
}

// Known makes a partly unknown value decodable: text that is unknown becomes desired.Unknown, so that whatever is made from
// it can be told; a number becomes 0, a bool false, a collection absent, an object one of such parts. The paths of what
// was unknown come back. An unknown element of a set has no path of its own, and its text tells that it is unknown.
func Known(v tftypes.Value) (tftypes.Value, Unknown, error) {
	return fill(v, guess{})
}

// guess is what an unknown value is taken for.
type guess struct {
	// elements gives unknown collections one unknown element; otherwise they are absent.
	elements bool
	// truth is what unknown bools are.
	truth bool
	// absent reports whether an unknown value is taken for absent; nil means none is.
	absent func(*tftypes.AttributePath) bool
}

func fill(v tftypes.Value, g guess) (tftypes.Value, Unknown, error) {
	var unknown Unknown
	known, err := tftypes.Transform(v, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		if v.IsKnown() {
			return v, nil
		}
		if at, ok := pathOf(p); ok || !v.Type().Is(tftypes.String) {
			unknown = append(unknown, at)
		}
		if g.absent != nil && g.absent(p) {
			return tftypes.NewValue(v.Type(), nil), nil
		}
		return g.value(v.Type()), nil
	})
	return known, unknown, err
}

func (g guess) value(t tftypes.Type) tftypes.Value {
	switch t := t.(type) {
	case tftypes.Object:
		parts := make(map[string]tftypes.Value, len(t.AttributeTypes))
		for name, t := range t.AttributeTypes {
			parts[name] = g.value(t)
		}
		return tftypes.NewValue(t, parts)
	case tftypes.Map:
		if g.elements {
			return tftypes.NewValue(t, map[string]tftypes.Value{desired.Unknown: g.value(t.ElementType)})
		}
		return tftypes.NewValue(t, nil)
	case tftypes.List:
		return g.collection(t, t.ElementType)
	case tftypes.Set:
		return g.collection(t, t.ElementType)
	}
	switch {
	case t.Is(tftypes.String):
		return tftypes.NewValue(t, desired.Unknown)
	case t.Is(tftypes.Number):
		return tftypes.NewValue(t, new(big.Float))
	case t.Is(tftypes.Bool):
		return tftypes.NewValue(t, g.truth)
	}
	return tftypes.NewValue(t, nil)
}

func (g guess) collection(t, element tftypes.Type) tftypes.Value {
	if g.elements {
		return tftypes.NewValue(t, []tftypes.Value{g.value(element)})
	}
	return tftypes.NewValue(t, nil)
}
