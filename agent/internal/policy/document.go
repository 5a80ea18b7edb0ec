package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/tailscale/hujson"
)

// document is the parsed text with the offsets that edits need.
type document struct {
	text []byte
	root list
}

// list is an object or an array: where its brackets are and what it holds.
type list struct {
	open, close int // offsets of the two brackets
	items       []item
}

// item is an array element or an object member.
type item struct {
	name       string // decoded; empty in an array
	lead       int    // where white space and comments before it begin
	start, end int    // the element, or the member from its name to the end of its value
	comma      int    // offset of the comma after it, or -1
	value      hujson.Value
	mark       *mark // or nil
}

func parse(text []byte) (*document, error) {
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parsing policy document: %w", err)
	}
	if v.Value.Kind() != '{' {
		return nil, fmt.Errorf("parsing policy document: want an object, got %s", kindName(v))
	}
	d := &document{text: text, root: newList(text, v)}
	seen := make(map[string]string)
	for _, it := range d.root.items {
		if was, dup := seen[fold(it.name)]; dup {
			return nil, fmt.Errorf("parsing policy document: sections %q and %q are the same one", was, it.name)
		}
		seen[fold(it.name)] = it.name
	}
	return d, nil
}

// newList lays out v, an object or an array, and reads the marks of its items.
func newList(text []byte, v hujson.Value) list {
	l := list{open: v.StartOffset, close: v.EndOffset - 1}
	lead := l.open + 1
	add := func(name string, first, value hujson.Value) {
		it := item{name: name, lead: lead, start: first.StartOffset, end: value.EndOffset, comma: -1, value: value}
		if after := value.EndOffset + len(value.AfterExtra); after < l.close && text[after] == ',' {
			it.comma = after
			lead = after + 1
		}
		if bytes.Contains(text[it.lead:it.start], []byte("by postern ")) {
			it.mark = findMark(text, it.lead, it.start)
		}
		l.items = append(l.items, it)
	}
	switch vv := v.Value.(type) {
	case *hujson.Array:
		for _, e := range vv.Elements {
			add("", e, e)
		}
	case *hujson.Object:
		for _, m := range vv.Members {
			add(literal(m.Name), m.Name, m.Value)
		}
	}
	return l
}

// last returns the list's last item, or nil.
func (l *list) last() *item {
	if len(l.items) == 0 {
		return nil
	}
	return &l.items[len(l.items)-1]
}

// trailingComma reports whether a comma stands before the closing bracket.
func (l *list) trailingComma() bool { return len(l.items) > 0 && l.last().comma >= 0 }

// gap returns what stands between the last item with its comma, or the opening bracket, and the closing bracket.
func (d *document) gap(l *list) []token {
	from := l.open + 1
	if last := l.last(); last != nil {
		from = max(last.end, last.comma+1)
	}
	return scan(d.text, from, l.close)
}

// section returns the member of the root that is s, or nil.
func (d *document) section(s Section) *item {
	for i := range d.root.items {
		if fold(d.root.items[i].name) == fold(string(s)) {
			return &d.root.items[i]
		}
	}
	return nil
}

// entries returns the list in section s. A section that is absent or null is an empty list that is not there.
func (d *document) entries(s Section) (l list, there bool, err error) {
	it := d.section(s)
	if it == nil || it.value.Value.Kind() == 'n' {
		return list{}, false, nil
	}
	if want := s.brackets()[0]; byte(it.value.Value.Kind()) != want {
		return list{}, false, fmt.Errorf("policy section %q: want %s, got %s", it.name, bracketName(want), kindName(it.value))
	}
	l = newList(d.text, it.value)
	if s == TagOwners {
		// A mark above another tag than the one that it names is left over from a member that a person took away.
		for i := range l.items {
			if m := l.items[i].mark; m != nil && m.key != l.items[i].name {
				l.items[i].mark = nil
			}
		}
	}
	return l, true, nil
}

// ruleless reports whether the document has neither acls nor grants, which allows everything (see the package comment).
func (d *document) ruleless() bool {
	for _, s := range []Section{Grants, "acls"} {
		if it := d.section(s); it != nil && it.value.Value.Kind() != 'n' {
			return false
		}
	}
	return true
}

// raw returns an item's value as standard JSON.
func (it *item) raw() json.RawMessage {
	v := it.value.Clone()
	v.BeforeExtra, v.AfterExtra = nil, nil
	v.Minimize()
	return v.Pack()
}

func (s Section) brackets() string {
	if s == TagOwners {
		return "{}"
	}
	return "[]"
}

// fold maps section names that Headscale takes for the same one to the same text: it matches them without regard
// to case, '_' and '-' (go-json-experiment/json, MatchCaseInsensitiveNames).
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		low := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			low = min(low, f)
		}
		return low
	}, name)
}

func bracketName(b byte) string {
	if b == '{' {
		return "an object"
	}
	return "a list"
}

func kindName(v hujson.Value) string {
	switch k := v.Value.Kind(); k {
	case '{', '[':
		return bracketName(byte(k))
	case '"':
		return "a string"
	case '0':
		return "a number"
	default:
		return literal(v)
	}
}

// literal is the text of a literal: of a string what it says, of anything else how it is written.
func literal(v hujson.Value) string {
	l, ok := v.Value.(hujson.Literal)
	if !ok {
		return ""
	}
	return l.String()
}

// raw is a literal as it is written.
func raw(v hujson.Value) []byte {
	l, _ := v.Value.(hujson.Literal)
	return l
}
