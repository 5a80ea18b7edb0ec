package store

import (
	"bytes"
	"slices"
	"strings"
)

// documents is the state of a store at one revision. The values in it are
// never changed, only replaced.
type documents struct {
	byKey    map[string]Entry
	keys     []string // sorted
	revision Revision
}

func newDocuments(entries []Entry, rev Revision) documents {
	d := documents{byKey: make(map[string]Entry, len(entries)), revision: rev}
	for _, e := range entries {
		d.byKey[e.Key] = e
		d.keys = append(d.keys, e.Key)
	}
	slices.Sort(d.keys)
	return d
}

// under returns the entries of a prefix, sorted, sharing their values.
func (d *documents) under(prefix string) []Entry {
	first, _ := slices.BinarySearch(d.keys, prefix)
	n := 0
	for first+n < len(d.keys) && strings.HasPrefix(d.keys[first+n], prefix) {
		n++
	}
	entries := make([]Entry, n)
	for i, key := range d.keys[first : first+n] {
		entries[i] = d.byKey[key]
	}
	return entries
}

func (d *documents) apply(b Batch) {
	for _, ev := range b.Events {
		key := ev.Entry.Key
		at, present := slices.BinarySearch(d.keys, key)
		switch {
		case ev.Deleted:
			delete(d.byKey, key)
			d.keys = slices.Delete(d.keys, at, at+1)
			continue
		case !present:
			d.keys = slices.Insert(d.keys, at, key)
		}
		d.byKey[key] = ev.Entry
	}
	d.revision = b.Revision
}

// pending is what commits will make of the documents once they are durable.
type pending struct {
	base     *documents
	changed  map[string]Entry // Modified 0: deleted
	revision Revision
	batches  []Batch
}

func (d *documents) pend() *pending {
	return &pending{base: d, changed: make(map[string]Entry), revision: d.revision}
}

// entry returns the zero Entry for an absent key.
func (p *pending) entry(key string) Entry {
	if e, ok := p.changed[key]; ok {
		return e
	}
	return p.base.byKey[key]
}

// commit adds one commit, or nothing when a guard does not hold. It copies the
// values. It returns the revision of the commit, or the current one when it
// changes nothing.
func (p *pending) commit(ops []Op) (Revision, error) {
	for _, op := range ops {
		have := p.entry(op.Key).Modified
		if want, ok := op.Guard.Wanted(); ok && want != have {
			return 0, &ConflictError{Key: op.Key, Have: have}
		}
	}
	next := Batch{Revision: p.revision + 1}
	for _, op := range ops {
		if ev, ok := p.event(op, next.Revision); ok {
			next.Events = append(next.Events, ev)
		}
	}
	if len(next.Events) == 0 {
		return p.revision, nil
	}
	slices.SortFunc(next.Events, func(a, b Event) int { return strings.Compare(a.Entry.Key, b.Entry.Key) })
	for _, ev := range next.Events {
		if ev.Deleted {
			p.changed[ev.Entry.Key] = Entry{}
		} else {
			p.changed[ev.Entry.Key] = ev.Entry
		}
	}
	p.revision = next.Revision
	p.batches = append(p.batches, next)
	return next.Revision, nil
}

func (p *pending) event(op Op, rev Revision) (ev Event, changes bool) {
	have := p.entry(op.Key)
	present := have.Modified != 0
	switch {
	case op.Check, op.Delete && !present:
		return Event{}, false
	case op.Delete:
		return Event{Entry: Entry{Key: op.Key, Modified: rev}, Deleted: true}, true
	}
	created := rev
	if present {
		created = have.Created
	}
	e := Entry{Key: op.Key, Value: op.Value, Created: created, Modified: rev}
	return Event{Entry: e.clone()}, true
}

// clone copies the value and makes it non-nil.
func (e Entry) clone() Entry {
	if e.Value = bytes.Clone(e.Value); e.Value == nil {
		e.Value = []byte{}
	}
	return e
}

// within returns a copy of the batch with the events under a prefix, and
// whether there are any.
func (b Batch) within(prefix string) (Batch, bool) {
	part := Batch{Revision: b.Revision}
	for _, ev := range b.Events {
		if !strings.HasPrefix(ev.Entry.Key, prefix) {
			continue
		}
		if !ev.Deleted {
			ev.Entry = ev.Entry.clone()
		}
		part.Events = append(part.Events, ev)
	}
	return part, len(part.Events) > 0
}
