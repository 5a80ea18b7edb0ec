package policy

import (
	"bytes"
	"encoding/json"

	"github.com/tailscale/hujson"
)

// render writes a JSON value on one line, the way people write policies: {"src": ["*"], "ip": ["tcp:443"]}.
func render(value json.RawMessage) (string, error) {
	v, err := hujson.Parse(bytes.Clone(value))
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	renderValue(&b, v)
	return b.String(), nil
}

func renderValue(b *bytes.Buffer, v hujson.Value) {
	switch vv := v.Value.(type) {
	case hujson.Literal:
		b.Write(vv)
	case *hujson.Array:
		b.WriteByte('[')
		for i, e := range vv.Elements {
			if i > 0 {
				b.WriteString(", ")
			}
			renderValue(b, e)
		}
		b.WriteByte(']')
	case *hujson.Object:
		b.WriteByte('{')
		for i, m := range vv.Members {
			if i > 0 {
				b.WriteString(", ")
			}
			b.Write(raw(m.Name))
			b.WriteString(": ")
			renderValue(b, m.Value)
		}
		b.WriteByte('}')
	}
}

// equal reports whether two values mean the same: white space, comments and the order of members are nothing.
// A member that is there twice is never equal, since readers differ in which one they take.
func equal(a, b hujson.Value) bool {
	switch av := a.Value.(type) {
	case *hujson.Array:
		bv, ok := b.Value.(*hujson.Array)
		if !ok || len(av.Elements) != len(bv.Elements) {
			return false
		}
		for i := range av.Elements {
			if !equal(av.Elements[i], bv.Elements[i]) {
				return false
			}
		}
		return true
	case *hujson.Object:
		bv, ok := b.Value.(*hujson.Object)
		if !ok || len(av.Members) != len(bv.Members) {
			return false
		}
		members := make(map[string]hujson.Value, len(av.Members))
		for _, m := range av.Members {
			members[literal(m.Name)] = m.Value
		}
		for _, m := range bv.Members {
			name := literal(m.Name)
			v, ok := members[name]
			if !ok || !equal(v, m.Value) {
				return false
			}
			delete(members, name)
		}
		return len(members) == 0
	}
	al, aok := a.Value.(hujson.Literal)
	bl, bok := b.Value.(hujson.Literal)
	return aok && bok && al.Kind() == bl.Kind() && al.String() == bl.String()
}

// equalJSON is equal for an item and wanted JSON, which must be valid.
func equalJSON(it *item, want json.RawMessage) bool {
	v, err := hujson.Parse(bytes.Clone(want))
	return err == nil && equal(it.value, v)
}
