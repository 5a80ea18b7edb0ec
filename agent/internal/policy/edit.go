package policy

import (
	"cmp"
	"slices"
	"strings"
)

// edit replaces text[start:end] by insert.
type edit struct {
	start, end int
	insert     string
}

// apply returns text with the edits made; they must not overlap. Insertions at the same place keep their order.
func apply(text []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return text
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(a.start-b.start, a.end-b.end) })
	size := len(text)
	for _, e := range edits {
		size += len(e.insert)
	}
	out := make([]byte, 0, size)
	at := 0
	for _, e := range edits {
		out = append(out, text[at:max(at, e.start)]...)
		out = append(out, e.insert...)
		at = max(at, e.end)
	}
	return append(out, text[at:]...)
}

// remove returns the edits that take marked items out of l with their comments and lines: what insert put there, to the
// byte. gone says which.
func (d *document) remove(l *list, gone func(*item) bool) []edit {
	var edits []edit
	lastKept, removed := -1, 0
	for i := range l.items {
		if gone(&l.items[i]) {
			edits = append(edits, d.cut(&l.items[i])...)
			removed++
		} else {
			lastKept = i
		}
	}
	switch {
	case removed == 0 || l.trailingComma():
	case lastKept < 0:
		edits = append(edits, d.collapse(l, edits)...)
	case lastKept < len(l.items)-1:
		// The list had no comma at its end, so it has none now.
		at := l.items[lastKept].comma
		edits = append(edits, edit{start: at, end: at + 1})
	}
	return edits
}

// cut removes one marked item: its line with the line of the mark, or just its text within a line.
func (d *document) cut(it *item) []edit {
	start, end := it.mark.start, it.end
	var edits []edit
	if it.comma == it.end {
		end++
	} else if it.comma >= 0 {
		edits = append(edits, edit{start: it.comma, end: it.comma + 1})
	}
	indent, first := lineIndent(d.text, start)
	next, blank := restOfLine(d.text, end)
	switch {
	case first && blank:
		start, end = start-len(indent), next
	case !first && start >= 2 && d.text[start-1] == ' ' && d.text[start-2] == ',':
		start--
	}
	return append(edits, edit{start: start, end: end})
}

// collapse closes a list that insert opened: "[]" became several lines, and is "[]" again if nothing but the line break that
// insert wrote is left. cuts are the edits that empty the list.
func (d *document) collapse(l *list, cuts []edit) []edit {
	first := slices.MinFunc(cuts, func(a, b edit) int { return a.start - b.start }).start
	before := scan(d.text, l.open+1, first)
	if len(before) == 0 || before[len(before)-1].kind != newline {
		return nil
	}
	from := before[len(before)-1].start
	if from > l.open+1 && d.text[from-1] == '\r' {
		from--
	}
	rest := apply(d.text[:l.close], slices.Clone(cuts))
	kept := from
	if strings.TrimSpace(string(rest[kept:])) != "" {
		return nil
	}
	var edits []edit
	at := from
	for _, c := range slices.SortedFunc(slices.Values(cuts), func(a, b edit) int { return a.start - b.start }) {
		edits = append(edits, edit{start: at, end: c.start})
		at = c.end
	}
	return append(edits, edit{start: at, end: l.close})
}

// chunk is an item to insert: its mark and its text.
type chunk struct {
	mark mark
	text string
}

// insert returns the edits that append chunks to l in the manner of its surroundings: a line each where the closing bracket
// stands on its own line, else within the line; with a trailing comma only where there was one.
func (d *document) insert(l *list, chunks []chunk) []edit {
	if len(chunks) == 0 {
		return nil
	}
	nl := lineBreak(d.text)
	closing, _ := lineIndent(d.text, l.open)
	indent := closing + d.indentUnit()
	if last := l.last(); last != nil {
		if in, first := lineIndent(d.text, last.start); first {
			indent = in
		}
	}
	lines := func(last string) string {
		var b strings.Builder
		for i, c := range chunks {
			sep := ","
			if i == len(chunks)-1 {
				sep = last
			}
			b.WriteString(indent + "// " + c.mark.text() + nl + indent + c.text + sep + nl)
		}
		return b.String()
	}
	last, at := l.last(), lastLineStart(d.gap(l))
	switch {
	case last == nil && at < 0: // "[]": collapse knows it by the missing comma
		return []edit{{start: l.close, end: l.close, insert: nl + lines("") + closing}}
	case last == nil:
		return []edit{{start: at, end: at, insert: lines(",")}}
	case at < 0:
		return d.insertInline(l, chunks)
	case last.comma >= 0:
		return []edit{{start: at, end: at, insert: lines(",")}}
	default:
		return []edit{{start: last.end, end: last.end, insert: ","}, {start: at, end: at, insert: lines("")}}
	}
}

func (d *document) insertInline(l *list, chunks []chunk) []edit {
	at, before, after := l.last().end, ", ", ""
	if c := l.last().comma; c >= 0 {
		at, before, after = c+1, " ", ","
	}
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString(before + "/* " + c.mark.text() + " */ " + c.text + after)
	}
	return []edit{{start: at, end: at, insert: b.String()}}
}

// indentUnit returns what the document indents its sections by; a tab, as hujson formats, if it doesn't show.
func (d *document) indentUnit() string {
	if len(d.root.items) > 0 {
		if in, first := lineIndent(d.text, d.root.items[0].start); first && in != "" {
			return in
		}
	}
	return "\t"
}
