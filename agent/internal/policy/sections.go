package policy

import (
	"bytes"
	"errors"
	"fmt"
)

// dropSections takes sections out that Merge had added and that are empty again, unless an empty one denies what its
// absence would allow.
func (m *merger) dropSections(d *document) ([]edit, error) {
	drop := make(map[int]bool)
	for _, s := range []Section{Grants, TagOwners} {
		l, there, err := d.entries(s)
		if err != nil {
			return nil, err
		}
		if !there || len(l.items) > 0 || len(bytes.TrimSpace(d.text[l.open+1:l.close])) > 0 {
			continue
		}
		it := d.section(s)
		if it.mark == nil || it.mark.kind != markSection || m.needs(s) || s == Grants && !m.mayDropGrants(d) {
			continue
		}
		drop[it.start] = true
	}
	return d.remove(&d.root, func(it *item) bool { return drop[it.start] }), nil
}

func (m *merger) needs(s Section) bool {
	for _, e := range m.missing {
		if e.Section == s {
			return true
		}
	}
	return false
}

// mayDropGrants reports whether the document means the same without an empty "grants": it does if "acls" is there,
// or if the rule that allowed all has just left with it (MadeImplicit).
func (m *merger) mayDropGrants(d *document) bool {
	for _, c := range m.changes {
		if c.Kind == MadeImplicit {
			return true
		}
	}
	acls := d.section("acls")
	return acls != nil && acls.value.Value.Kind() != 'n'
}

// addSections makes room for the missing entries.
func (m *merger) addSections(d *document) ([]edit, error) {
	var chunks []chunk
	var edits []edit
	for _, s := range []Section{TagOwners, Grants} {
		if !m.needs(s) {
			continue
		}
		it := d.section(s)
		switch {
		case it == nil:
			text := fmt.Sprintf("%q: %s", string(s), d.emptyList(s))
			chunks = append(chunks, chunk{mark: mark{kind: markSection, instance: m.instance}, text: text})
		case it.value.Value.Kind() == 'n': // null is the same as absent, and can't hold anything
			edits = append(edits, edit{start: it.value.StartOffset, end: it.end, insert: s.brackets()})
		}
	}
	return append(edits, d.insert(&d.root, chunks)...), nil
}

// emptyList returns a new section's brackets: on two lines where the document is written in lines with trailing commas, so
// that the section is too.
func (d *document) emptyList(s Section) string {
	b := s.brackets()
	if !d.root.trailingComma() || lastLineStart(d.gap(&d.root)) < 0 {
		return b
	}
	return b[:1] + lineBreak(d.text) + d.indentUnit() + b[1:]
}

// add writes the missing entries at the end of their sections.
func (m *merger) add(d *document) ([]edit, error) {
	var edits []edit
	for _, s := range []Section{TagOwners, Grants} {
		if !m.needs(s) {
			continue
		}
		l, there, err := d.entries(s)
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, fmt.Errorf("policy section %q is missing after it was added", s)
		}
		var chunks []chunk
		if s == Grants && m.explicit {
			chunks = append(chunks, chunk{mark: mark{kind: markKept, instance: m.instance}, text: allowAllRule})
			m.changes = append(m.changes, Change{Kind: MadeExplicit, Entry: m.explicitEntry()})
		}
		for _, e := range m.missing {
			if e.Section != s {
				continue
			}
			text, err := e.render()
			if err != nil {
				return nil, fmt.Errorf("rendering policy entry %s (%s): %w", s, e.Key, err)
			}
			chunks = append(chunks, chunk{mark: mark{kind: markOwned, instance: m.instance, owner: e.Owner, key: e.Key}, text: text})
			m.changes = append(m.changes, Change{Kind: Added, Entry: e})
		}
		edits = append(edits, d.insert(&l, chunks)...)
	}
	return edits, nil
}

// errDamaged is a fault in this package. Merge checks its own result, so that such a fault stops a write and harms nobody.
var errDamaged = errors.New("merged policy document is not what was asked for")

// verify reports an error unless after differs from before in owned entries only and holds exactly want.
func verify(before, after *document, instance string, want []Entry) error {
	was, err := before.foreign(instance)
	if err != nil {
		return err
	}
	is, err := after.foreign(instance)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if len(was) != len(is) {
		return fmt.Errorf("%w: %d foreign entries became %d", errDamaged, len(was), len(is))
	}
	for i := range was {
		if !bytes.Equal(was[i], is[i]) {
			return fmt.Errorf("%w: foreign entry %q became %q", errDamaged, clip(was[i]), clip(is[i]))
		}
	}
	return after.holds(instance, want)
}

// foreign returns, in order, the text of all that instance does not own: root members, and the foreign items of the sections
// that hold entries.
func (d *document) foreign(instance string) ([][]byte, error) {
	var all [][]byte
	for i := range d.root.items {
		it := &d.root.items[i]
		if s := fold(it.name); s != fold(string(Grants)) && s != fold(string(TagOwners)) {
			all = append(all, d.text[it.start:it.end])
		}
	}
	for _, s := range []Section{Grants, TagOwners} {
		l, _, err := d.entries(s)
		if err != nil {
			return nil, err
		}
		for i := range l.items {
			it := &l.items[i]
			if !it.ownedBy(instance) && (it.mark == nil || it.mark.kind != markKept) {
				all = append(all, d.text[it.start:it.end])
			}
		}
	}
	return all, nil
}

// holds reports an error unless the entries of instance are want, tags that are there as foreign ones aside.
func (d *document) holds(instance string, want []Entry) error {
	owned := make(map[entryID]*item)
	tags := make(map[string]bool)
	for _, s := range []Section{Grants, TagOwners} {
		l, _, err := d.entries(s)
		if err != nil {
			return err
		}
		for i := range l.items {
			it := &l.items[i]
			tags[it.name] = true
			if it.ownedBy(instance) {
				owned[it.entry(s).id()] = it
			}
		}
	}
	for _, e := range want {
		it := owned[e.id()]
		switch foreign := e.Section == TagOwners && tags[e.Key]; {
		case it == nil && !foreign:
			return fmt.Errorf("%w: %s (%s) is not there", errDamaged, e.Section, e.Key)
		case it != nil && !equalJSON(it, e.Value):
			return fmt.Errorf("%w: %s (%s) has another value", errDamaged, e.Section, e.Key)
		}
		delete(owned, e.id())
	}
	if len(owned) > 0 {
		return fmt.Errorf("%w: %d entries too many", errDamaged, len(owned))
	}
	return nil
}

func clip(b []byte) []byte { return b[:min(len(b), 80)] }
