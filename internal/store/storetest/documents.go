package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/store"
)

func documents(t *testing.T, s store.Store) {
	_, err := s.Get(t.Context(), "objects/a")
	wantErr(t, "Get of an absent key", err, store.ErrNotFound)

	rev := commit(t, s, store.Put("objects/a", []byte("one")), store.Put("objects/b", nil))
	if rev < 1 {
		t.Errorf("revision %d of the first commit", rev)
	}
	wantEqual(t, "a", get(t, s, "objects/a"), store.Entry{Key: "objects/a", Value: []byte("one"), Created: rev, Modified: rev})
	wantEqual(t, "b", get(t, s, "objects/b"), store.Entry{Key: "objects/b", Value: []byte{}, Created: rev, Modified: rev})

	commit(t, s, store.Delete("objects/a"))
	_, err = s.Get(t.Context(), "objects/a")
	wantErr(t, "Get of a deleted key", err, store.ErrNotFound)
	_, err = s.Get(t.Context(), "objects")
	wantErr(t, "Get of a folder", err, store.ErrNotFound)
}

func createdAndModified(t *testing.T, s store.Store) {
	first := commit(t, s, store.Put("a", []byte("1")))
	second := commit(t, s, store.Put("a", []byte("1")))
	if second <= first {
		t.Fatalf("revision %d after %d", second, first)
	}
	wantEqual(t, "put again", get(t, s, "a"), store.Entry{Key: "a", Value: []byte("1"), Created: first, Modified: second})

	other := commit(t, s, store.Put("b", nil))
	wantEqual(t, "other key changed", get(t, s, "a").Modified, second)
	gone := commit(t, s, store.Delete("a"))
	again := commit(t, s, store.Put("a", nil))
	if !(second < other && other < gone && gone < again) {
		t.Errorf("revisions do not grow: %d %d %d %d", second, other, gone, again)
	}
	wantEqual(t, "made again", get(t, s, "a"), store.Entry{Key: "a", Value: []byte{}, Created: again, Modified: again})
}

func guards(t *testing.T, s store.Store) {
	commit(t, s, store.Put("there", []byte("1")))
	rev := commit(t, s, store.Put("there", []byte("2")), store.Put("other", nil))
	for _, c := range []struct {
		name string
		op   store.Op
		have store.Revision
		ok   bool
	}{
		{"put, absent, is absent", store.Put("new1", nil, store.IfAbsent()), 0, true},
		{"put, absent, is present", store.Put("there", nil, store.IfAbsent()), rev, false},
		{"put, wrong revision", store.Put("there", nil, store.IfRevision(rev-1)), rev, false},
		{"put, future revision", store.Put("there", nil, store.IfRevision(rev+1)), rev, false},
		{"put, negative revision", store.Put("there", nil, store.IfRevision(-1)), rev, false},
		{"put, revision, is absent", store.Put("new2", nil, store.IfRevision(rev)), 0, false},
		{"put, revision 0, is absent", store.Put("new3", nil, store.IfRevision(0)), 0, true},
		{"delete, wrong revision", store.Delete("there", store.IfRevision(rev-1)), rev, false},
		{"delete, revision, is absent", store.Delete("new4", store.IfRevision(rev)), 0, false},
		{"delete, absent, is absent", store.Delete("new5", store.IfAbsent()), 0, true},
		{"check, right revision", store.Check("there", store.IfRevision(rev)), rev, true},
		{"check, wrong revision", store.Check("there", store.IfRevision(rev-1)), rev, false},
		{"check, absent", store.Check("new6", store.IfAbsent()), 0, true},
		{"check, no guard", store.Check("new7", store.Guard{}), 0, true},
		{"put, zero guard", store.Put("new8", nil, store.Guard{}), 0, true},
		{"put, right revision", store.Put("other", nil, store.IfRevision(rev)), rev, true},
		{"delete, right revision", store.Delete("there", store.IfRevision(rev)), rev, true},
	} {
		_, before := listed(t, s, "")
		_, err := s.Commit(t.Context(), c.op)
		if c.ok {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: error %v, want a conflict", c.name, err)
			continue
		}
		wantEqual(t, c.name, *conflict, store.ConflictError{Key: c.op.Key, Have: c.have})
		if _, after := listed(t, s, ""); after != before {
			t.Errorf("%s: revision went from %d to %d", c.name, before, after)
		}
	}
	for _, op := range []store.Op{
		store.Put("x", nil, store.IfAbsent(), store.IfRevision(1)),
		{Key: "x", Check: true, Delete: true},
		{Key: "x", Value: []byte("v"), Delete: true},
	} {
		_, err := s.Commit(t.Context(), op)
		wantErr(t, fmt.Sprintf("%+v", op), err, store.ErrInvalid)
	}
}

func allOrNothing(t *testing.T, s store.Store) {
	rev := commit(t, s, store.Put("a", []byte("1")), store.Put("b", []byte("1")))
	want, _ := listed(t, s, "")
	for _, ops := range [][]store.Op{
		{store.Put("a", []byte("2")), store.Put("c", nil), store.Delete("b", store.IfRevision(rev+1))},
		{store.Delete("a"), store.Check("b", store.IfAbsent())},
		{store.Check("c", store.IfRevision(rev)), store.Put("a", nil)},
	} {
		_, err := s.Commit(t.Context(), ops...)
		wantErr(t, "one guard fails", err, store.ErrConflict)
		got, _ := listed(t, s, "")
		wantEqual(t, "documents after it", got, want)
	}
	// Of several, the first guard is reported.
	_, err := s.Commit(t.Context(), store.Check("b", store.IfAbsent()), store.Check("a", store.IfAbsent()))
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) || conflict.Key != "b" {
		t.Errorf("error %v, want a conflict about b", err)
	}

	rev = commit(t, s, store.Put("a", []byte("2")), store.Delete("b"), store.Put("c", []byte("2")), store.Check("d", store.IfAbsent()))
	got, _ := listed(t, s, "")
	wantEqual(t, "documents", got, []store.Entry{
		{Key: "a", Value: []byte("2"), Created: want[0].Created, Modified: rev},
		{Key: "c", Value: []byte("2"), Created: rev, Modified: rev},
	})
}

func noChange(t *testing.T, s store.Store) {
	_, start := listed(t, s, "")
	wantEqual(t, "empty commit in an empty store", commit(t, s), start)
	rev := commit(t, s, store.Put("a", nil))
	wantEqual(t, "empty commit", commit(t, s), rev)
	wantEqual(t, "check", commit(t, s, store.Check("a", store.IfRevision(rev))), rev)
	wantEqual(t, "delete of an absent key", commit(t, s, store.Delete("b")), rev)
	wantEqual(t, "both", commit(t, s, store.Delete("b", store.IfAbsent()), store.Check("c", store.IfAbsent())), rev)
	if again := commit(t, s, store.Put("a", nil)); again <= rev {
		t.Errorf("put of the same value: revision %d after %d", again, rev)
	}
}

func keySyntax(t *testing.T, s store.Store) {
	for _, key := range []string{"a", "a/b", "objects/ingress/-/web", "a b", "~!*?[]{}\\\"'", "A/a", ".", "..", strings.Repeat("k", store.MaxKey)} {
		commit(t, s, store.Put(key, []byte(key)))
		wantEqual(t, key, string(get(t, s, key).Value), key)
	}
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "ä", "a\x00", "a\n", "a\x7f", "a\xff"} {
		_, err := s.Commit(t.Context(), store.Put(key, nil))
		wantErr(t, fmt.Sprintf("Put(%q)", key), err, store.ErrInvalid)
		_, err = s.Get(t.Context(), key)
		wantErr(t, fmt.Sprintf("Get(%q)", key), err, store.ErrInvalid)
	}
	_, err := s.Commit(t.Context(), store.Put("a", nil), store.Check("a", store.Guard{}))
	wantErr(t, "a key twice", err, store.ErrInvalid)
}

func limits(t *testing.T, s store.Store) {
	big := bytes.Repeat([]byte("v"), store.MaxValue)
	commit(t, s, store.Put("big", big))
	if got := get(t, s, "big"); !bytes.Equal(got.Value, big) {
		t.Error("the biggest value came back changed")
	}
	half := big[:store.MaxValue/2]
	var many []store.Op
	for i := range store.MaxOps + 1 {
		many = append(many, store.Put(fmt.Sprintf("many/%d", i), nil))
	}
	for name, ops := range map[string][]store.Op{
		"value":  {store.Put("a", append(big, 'v'))},
		"commit": {store.Put("a", half), store.Put("b", half), store.Put("c", half)},
		"ops":    many,
		"key":    {store.Put(strings.Repeat("k", store.MaxKey+1), nil)},
	} {
		_, err := s.Commit(t.Context(), ops...)
		wantErr(t, name, err, store.ErrTooLarge)
	}
	commit(t, s, many[:store.MaxOps]...)
	entries, _ := listed(t, s, "")
	wantEqual(t, "number of documents", len(entries), 1+store.MaxOps)
}

func list(t *testing.T, s store.Store) {
	entries, _ := listed(t, s, "")
	wantEqual(t, "documents of an empty store", keys(entries), []string{})
	for _, key := range []string{"b/2", "b/1", "a", "b-1", "c/d/e", "b", "b/10"} {
		commit(t, s, store.Put(key, []byte(key)))
	}
	rev := commit(t, s)
	for prefix, want := range map[string][]string{
		"":      {"a", "b", "b-1", "b/1", "b/10", "b/2", "c/d/e"},
		"b":     {"b", "b-1", "b/1", "b/10", "b/2"},
		"b/":    {"b/1", "b/10", "b/2"},
		"b/1":   {"b/1", "b/10"},
		"c/d/e": {"c/d/e"},
		"c/d/f": {},
		"d":     {},
		"\xff":  {},
	} {
		entries, at := listed(t, s, prefix)
		wantEqual(t, fmt.Sprintf("keys under %q", prefix), keys(entries), want)
		wantEqual(t, "revision", at, rev)
		for _, e := range entries {
			wantEqual(t, e.Key, e, get(t, s, e.Key))
		}
	}
}

func ownership(t *testing.T, s store.Store) {
	value := []byte("value")
	commit(t, s, store.Put("a", value))
	copy(value, "XXXXX")
	wantEqual(t, "after changing what was put", string(get(t, s, "a").Value), "value")
	copy(get(t, s, "a").Value, "XXXXX")
	wantEqual(t, "after changing what was got", string(get(t, s, "a").Value), "value")
	entries, _ := listed(t, s, "")
	copy(entries[0].Value, "XXXXX")
	entries[0].Key = "b"
	wantEqual(t, "after changing what was listed", string(get(t, s, "a").Value), "value")
	_ = append(get(t, s, "a").Value, "more"...)
	wantEqual(t, "after appending to what was got", string(get(t, s, "a").Value), "value")
}

func endedContext(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "a")
	wantErr(t, "Get", err, context.Canceled)
	_, _, err = s.List(ctx, "")
	wantErr(t, "List", err, context.Canceled)
	_, err = s.Watch(ctx, "", 0)
	wantErr(t, "Watch", err, context.Canceled)
	_, err = s.Commit(ctx, store.Put("a", nil))
	wantErr(t, "Commit", err, context.Canceled)
}

func closed(t *testing.T, s store.Store) {
	rev := commit(t, s, store.Put("a", nil))
	batches, err := s.Watch(t.Context(), "", rev)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if b, ok := next(t, batches); ok {
		t.Errorf("batch %v from a closed store", b)
	}
	_, err = s.Get(t.Context(), "a")
	wantErr(t, "Get", err, store.ErrClosed)
	_, _, err = s.List(t.Context(), "")
	wantErr(t, "List", err, store.ErrClosed)
	_, err = s.Commit(t.Context(), store.Put("a", nil))
	wantErr(t, "Commit", err, store.ErrClosed)
	_, err = s.Watch(t.Context(), "", rev)
	wantErr(t, "Watch", err, store.ErrClosed)
}
