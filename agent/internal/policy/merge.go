package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Merge returns doc with exactly want as the entries that instance has marked, and what it changed. Every byte that
// Postern does not own is kept; doc itself is not changed. The result depends on the arguments alone, not on the order of
// want, and merging it again changes nothing. Adding entries and removing them gives the same bytes as before, where people
// did not edit what was added. doc must be an object; where a control plane has no policy yet, merge into [AllowAll].
//
// The result never allows more than doc and want together, nor less than doc did: see the package comment.
func Merge(doc []byte, instance string, want []Entry) (out []byte, changes []Change, err error) {
	m := merger{instance: instance}
	if m.want, err = check(instance, want); err != nil {
		return nil, nil, err
	}
	before, err := parse(bytes.Clone(doc))
	if err != nil {
		return nil, nil, err
	}
	d := before
	for _, pass := range []func(*document) ([]edit, error){m.update, m.dropSections, m.addSections, m.add} {
		edits, err := pass(d)
		if err != nil {
			return nil, nil, err
		}
		if len(edits) == 0 {
			continue
		}
		if d, err = parse(apply(d.text, edits)); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	if err := verify(before, d, instance, m.want); err != nil {
		return nil, nil, err
	}
	return d.text, m.changes, nil
}

// check validates the arguments and returns want in the order in which it is written.
func check(instance string, want []Entry) ([]Entry, error) {
	if err := checkInstance(instance); err != nil {
		return nil, err
	}
	var errs []error
	seen := make(map[entryID]Entry)
	for _, e := range want {
		if err := e.check(); err != nil {
			errs = append(errs, fmt.Errorf("policy entry %s of %q (%s): %w", e.Section, e.Owner, e.Key, err))
			continue
		}
		if was, dup := seen[e.id()]; dup {
			errs = append(errs, fmt.Errorf("policy entry %s (%s) is wanted twice: by %q and by %q", e.Section, e.Key, was.Owner, e.Owner))
		}
		seen[e.id()] = e
	}
	return slices.SortedFunc(slices.Values(want), func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Section, b.Section), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Key, b.Key))
	}), errors.Join(errs...)
}

func (e Entry) check() error {
	if err := checkCommentText(e.Owner); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if err := checkCommentText(e.Key); err != nil || strings.ContainsAny(e.Key, "()") {
		return fmt.Errorf("key: %w", cmp.Or(err, errors.New("want no parentheses")))
	}
	kind := byte('{')
	switch e.Section {
	case TagOwners:
		kind = '['
		if !strings.HasPrefix(e.Key, "tag:") {
			return errors.New(`key: want a tag, which begins with "tag:"`)
		}
	case Grants:
	default:
		return fmt.Errorf("section: want %q or %q", Grants, TagOwners)
	}
	if !json.Valid(e.Value) || bytes.TrimSpace(e.Value)[0] != kind {
		return fmt.Errorf("value: want %s in JSON", bracketName(kind))
	}
	return nil
}

// entryID tells entries of one instance apart. A tag can be there once, whoever owns it.
type entryID struct {
	section    Section
	owner, key string
}

func (e Entry) id() entryID {
	if e.Section == TagOwners {
		return entryID{section: e.Section, key: e.Key}
	}
	return entryID{e.Section, e.Owner, e.Key}
}

type merger struct {
	instance string
	want     []Entry
	missing  []Entry // what update did not find; then what add writes
	explicit bool    // the document's meaning must be written as a rule
	changes  []Change
}

// entry returns what a marked item is.
func (it *item) entry(s Section) Entry {
	return Entry{Owner: it.mark.owner, Section: s, Key: it.mark.key, Value: it.raw()}
}

func (it *item) ownedBy(instance string) bool {
	return it.mark != nil && it.mark.kind == markOwned && it.mark.instance == instance
}

// update removes what is not wanted any more, and repairs what differs.
func (m *merger) update(d *document) ([]edit, error) {
	have, edits := make(map[entryID]bool), []edit(nil)
	wanted := make(map[entryID]Entry, len(m.want))
	for _, e := range m.want {
		wanted[e.id()] = e
	}
	for _, s := range []Section{Grants, TagOwners} {
		l, there, err := d.entries(s)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		m.leaveForeign(s, &l, wanted, have)
		gone := make(map[int]bool)
		for i := range l.items {
			it := &l.items[i]
			if !it.ownedBy(m.instance) {
				continue
			}
			is := it.entry(s)
			w, ok := wanted[is.id()]
			switch {
			case !ok || have[is.id()]:
				gone[it.start] = true
				m.changes = append(m.changes, Change{Kind: Removed, Entry: is, Was: is.Value})
			case !equalJSON(it, w.Value) || is.Owner != w.Owner:
				edits = append(edits, m.replace(it, w)...)
				m.changes = append(m.changes, Change{Kind: Replaced, Entry: w, Was: is.Value})
			}
			have[is.id()] = true
		}
		if s == Grants && m.restores(d, &l, gone) {
			for i := range l.items {
				gone[l.items[i].start] = true
			}
			m.changes = append(m.changes, Change{Kind: MadeImplicit, Entry: m.explicitEntry(), Was: json.RawMessage(allowAllRule)})
		}
		edits = append(edits, d.remove(&l, func(it *item) bool { return gone[it.start] })...)
	}
	for _, e := range m.want {
		if !have[e.id()] {
			m.missing = append(m.missing, e)
		}
	}
	m.explicit = d.ruleless() && slices.ContainsFunc(m.missing, func(e Entry) bool { return e.Section == Grants })
	return edits, nil
}

// leaveForeign notes wanted tags that are in the list already without our mark: a second member of that name would make the
// document invalid.
func (m *merger) leaveForeign(s Section, l *list, wanted map[entryID]Entry, have map[entryID]bool) {
	if s != TagOwners {
		return
	}
	for i := range l.items {
		it := &l.items[i]
		w, ok := wanted[entryID{section: s, key: it.name}]
		if !ok || it.ownedBy(m.instance) {
			continue
		}
		c := Change{Kind: SatisfiedByForeign, Entry: w, Was: it.raw()}
		if it.mark != nil {
			c.Instance = it.mark.instance
		}
		m.changes = append(m.changes, c)
		have[w.id()] = true
	}
}

// replace writes the wanted value in place, and the mark if its owner changed.
func (m *merger) replace(it *item, w Entry) []edit {
	text, _ := w.render()
	edits := []edit{{start: it.start, end: it.end, insert: text}}
	if it.mark.owner != w.Owner {
		now := mark{kind: markOwned, instance: m.instance, owner: w.Owner, key: w.Key}
		edits = append(edits, edit{start: it.mark.textStart, end: it.mark.textEnd, insert: now.text()})
	}
	return edits
}

// render writes the entry as the item that it is in its section.
func (e Entry) render() (string, error) {
	text, err := render(e.Value)
	if err != nil || e.Section == Grants {
		return text, err
	}
	return string(hujson.String(e.Key)) + ": " + text, nil
}

func (m *merger) explicitEntry() Entry {
	return Entry{Owner: "document without rules", Section: Grants, Key: "allow_all", Value: json.RawMessage(allowAllRule)}
}

// restores reports whether, with the gone items gone, only the rule is left that says what the document meant without
// rules, in a section that was not there then: taking both out keeps the meaning and gives the old bytes back.
func (m *merger) restores(d *document, l *list, gone map[int]bool) bool {
	sec, acls := d.section(Grants), d.section("acls")
	ours := sec.mark != nil && sec.mark.kind == markSection
	if len(gone) == 0 || !ours || acls != nil && acls.value.Value.Kind() != 'n' {
		return false
	}
	if slices.ContainsFunc(m.want, func(e Entry) bool { return e.Section == Grants }) {
		return false
	}
	kept := 0
	for i := range l.items {
		it := &l.items[i]
		if gone[it.start] {
			continue
		}
		if it.mark == nil || it.mark.kind != markKept || !equalJSON(it, json.RawMessage(allowAllRule)) {
			return false
		}
		kept++
	}
	return kept == 1
}
