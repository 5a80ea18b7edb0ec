package policy

import "bytes"

// tokenKind is what can stand between two JSON values.
type tokenKind byte

const (
	space        tokenKind = iota // blanks, tabs, carriage returns
	newline                       // one '\n'
	lineComment                   // from "//" to its '\n', which belongs to it
	blockComment                  // may hold line breaks, which end no line for us
	comma
)

type token struct {
	kind       tokenKind
	start, end int
}

// scan splits doc[start:end], which must lie between values of a document that parses.
func scan(doc []byte, start, end int) []token {
	var toks []token
	for i := start; i < end; {
		t := token{start: i, end: i + 1}
		switch c := doc[i]; {
		case c == '\n':
			t.kind = newline
		case c == ',':
			t.kind = comma
		case c == '/' && doc[i+1] == '/':
			t.kind, t.end = lineComment, end
			if n := bytes.IndexByte(doc[i:end], '\n'); n >= 0 {
				t.end = i + n + 1
			}
		case c == '/':
			t.kind, t.end = blockComment, i+2+bytes.Index(doc[i+2:end], []byte("*/"))+2
		default:
			t.kind = space
			for t.end < end && isBlank(doc[t.end]) {
				t.end++
			}
		}
		toks = append(toks, t)
		i = t.end
	}
	return toks
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// lastLineStart returns the offset after the last line break among the tokens, or -1 if there is none.
func lastLineStart(toks []token) int {
	for i := len(toks) - 1; i >= 0; i-- {
		if k := toks[i].kind; k == newline || k == lineComment {
			return toks[i].end
		}
	}
	return -1
}

// lineIndent returns the white space at the start of the line that holds off, and whether off is the first thing on it.
func lineIndent(doc []byte, off int) (indent string, first bool) {
	begin := bytes.LastIndexByte(doc[:off], '\n') + 1
	end := begin
	for end < off && isBlank(doc[end]) {
		end++
	}
	return string(doc[begin:end]), end == off
}

// restOfLine returns the offset after the line break if only blanks stand between off and it.
func restOfLine(doc []byte, off int) (end int, blank bool) {
	for off < len(doc) && isBlank(doc[off]) {
		off++
	}
	if off < len(doc) && doc[off] == '\n' {
		return off + 1, true
	}
	return off, false
}

// lineBreak returns the document's way to end a line, taken from its first line.
func lineBreak(doc []byte) string {
	if i := bytes.IndexByte(doc, '\n'); i > 0 && doc[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
