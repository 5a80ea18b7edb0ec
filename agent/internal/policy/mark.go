package policy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// markKind tells the comments that Merge writes apart.
type markKind byte

const (
	markOwned   markKind = iota // above an entry
	markSection                 // above a section that was not there before
	markKept                    // above the rule that says what a document without rules meant
)

const (
	ownedPrefix   = "managed by postern "
	ownedSuffix   = "; edits here are undone"
	sectionPrefix = "added by postern "
	sectionSuffix = " for the entries below"
	keptPrefix    = "kept by postern "
	keptSuffix    = ": without rules this document let everyone reach everything; remove this entry to allow only what is listed"
)

// mark is such a comment, read or to be written.
type mark struct {
	kind       markKind
	instance   string
	owner, key string // markOwned only
	start      int    // where the comment begins in the document
	// textStart and textEnd enclose the text within the comment.
	textStart, textEnd int
}

func (m mark) text() string {
	switch m.kind {
	case markSection:
		return sectionPrefix + m.instance + sectionSuffix
	case markKept:
		return keptPrefix + m.instance + keptSuffix
	}
	return ownedPrefix + m.instance + ": " + m.owner + " (" + m.key + ")" + ownedSuffix
}

// parseMark reads a comment's text, without its delimiters and the white space around it.
func parseMark(text string) (mark, bool) {
	if rest, ok := strings.CutPrefix(text, sectionPrefix); ok {
		instance, ok := strings.CutSuffix(rest, sectionSuffix)
		return mark{kind: markSection, instance: instance}, ok
	}
	if rest, ok := strings.CutPrefix(text, keptPrefix); ok {
		instance, _, ok := strings.Cut(rest, ": ")
		return mark{kind: markKept, instance: instance}, ok
	}
	rest, ok := strings.CutPrefix(text, ownedPrefix)
	if !ok {
		return mark{}, false
	}
	instance, rest, ok := strings.Cut(rest, ": ")
	if !ok {
		return mark{}, false
	}
	rest, ok = strings.CutSuffix(strings.TrimSuffix(rest, ownedSuffix), ")")
	i := strings.LastIndex(rest, " (")
	if !ok || i < 0 {
		return mark{}, false
	}
	return mark{kind: markOwned, instance: instance, owner: rest[:i], key: rest[i+2:]}, true
}

// findMark returns the mark of what begins at start; lead is where the white space and comments before it begin.
func findMark(doc []byte, lead, start int) *mark {
	toks := scan(doc, lead, start)
	breaks := 0
	for i := len(toks) - 1; i >= 0; i-- {
		t := toks[i]
		from, to := t.start+2, t.end
		switch t.kind {
		case space:
			continue
		case newline:
			if breaks++; breaks > 1 {
				return nil
			}
			continue
		case lineComment:
			if breaks > 0 { // its own line break, then another: a blank line
				return nil
			}
		case blockComment:
			to -= 2
		}
		text := bytes.TrimSpace(doc[from:to])
		m, ok := parseMark(string(text))
		if !ok {
			return nil
		}
		m.start = t.start
		m.textStart = from + bytes.Index(doc[from:to], text)
		m.textEnd = m.textStart + len(text)
		return &m
	}
	return nil
}

// checkInstance refuses a name that would not survive being written into a comment and read back.
func checkInstance(name string) error {
	ok := name != "" && strings.IndexFunc(name, func(r rune) bool {
		return !(r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	}) < 0
	if !ok {
		return fmt.Errorf("instance name %q: want letters, digits, '-', '_' and '.'", name)
	}
	return nil
}

var errCommentText = errors.New(`want one line of text without "*/" and without white space around it`)

func checkCommentText(s string) error {
	odd := strings.IndexFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) >= 0
	if s == "" || odd || s != strings.TrimSpace(s) || strings.Contains(s, "*/") {
		return errCommentText
	}
	return nil
}
