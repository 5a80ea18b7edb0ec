package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func grant(owner, src, dst string) Entry {
	return Entry{Owner: owner, Section: Grants, Key: "allow_from", Value: json.RawMessage(`{"src":["` + src + `"],"dst":["` + dst + `"],"ip":["tcp:443"]}`)}
}

func tag(owner, name string) Entry {
	return Entry{Owner: owner, Section: TagOwners, Key: name, Value: json.RawMessage(`["tag:postern"]`)}
}

func shop() []Entry {
	return []Entry{grant("ingress default/shop", "group:shop", "tag:ingress-shop"), tag("ingress default/shop", "tag:ingress-shop")}
}

// TestMergeWrites shows what people see in their document. Every case is also taken back to where it started.
func TestMergeWrites(t *testing.T) {
	tests := []struct {
		name, doc, want string
		entries         []Entry
		kinds           []Kind
	}{
		{
			name:    "lines with trailing commas",
			entries: shop(),
			kinds:   []Kind{Added, Added},
			doc: `// Corp policy. Ask #net before you edit.
{
  "tagOwners": {
    "tag:web": ["group:eng"], // the old web tier
  },
  "grants": [
    // engineers
    {"src": ["group:eng"], "dst": ["*"], "ip": ["*"]},
    // end of grants
  ],
}
`,
			want: `// Corp policy. Ask #net before you edit.
{
  "tagOwners": {
    "tag:web": ["group:eng"], // the old web tier
    // managed by postern main: ingress default/shop (tag:ingress-shop); edits here are undone
    "tag:ingress-shop": ["tag:postern"],
  },
  "grants": [
    // engineers
    {"src": ["group:eng"], "dst": ["*"], "ip": ["*"]},
    // end of grants
    // managed by postern main: ingress default/shop (allow_from); edits here are undone
    {"src": ["group:shop"], "dst": ["tag:ingress-shop"], "ip": ["tcp:443"]},
  ],
}
`,
		},
		{
			name:    "no trailing comma, comment after the last element, sections in odd order, CRLF",
			entries: shop(),
			kinds:   []Kind{Added, Added},
			doc:     "{\r\n\t\"grants\": [\r\n\t\t{\"src\": [\"a@\"], \"dst\": [\"*\"], \"ip\": [\"*\"]} // all of a\r\n\t],\r\n\t\"tagOwners\": {\"tag:a\": []}\r\n}",
			want: "{\r\n\t\"grants\": [\r\n\t\t{\"src\": [\"a@\"], \"dst\": [\"*\"], \"ip\": [\"*\"]}, // all of a\r\n" +
				"\t\t// managed by postern main: ingress default/shop (allow_from); edits here are undone\r\n" +
				"\t\t{\"src\": [\"group:shop\"], \"dst\": [\"tag:ingress-shop\"], \"ip\": [\"tcp:443\"]}\r\n\t],\r\n" +
				"\t\"tagOwners\": {\"tag:a\": [], /* managed by postern main: ingress default/shop (tag:ingress-shop); edits here are undone */ \"tag:ingress-shop\": [\"tag:postern\"]}\r\n}",
		},
		{
			name:    "no rules: what that meant is written first (P13)",
			entries: shop(),
			kinds:   []Kind{Added, MadeExplicit, Added},
			doc:     `{}`,
			want: `{
	// added by postern main for the entries below
	"tagOwners": {
		// managed by postern main: ingress default/shop (tag:ingress-shop); edits here are undone
		"tag:ingress-shop": ["tag:postern"]
	},
	// added by postern main for the entries below
	"grants": [
		// kept by postern main: without rules this document let everyone reach everything; remove this entry to allow only what is listed
		{"src": ["autogroup:danger-all"], "dst": ["*"], "ip": ["*"]},
		// managed by postern main: ingress default/shop (allow_from); edits here are undone
		{"src": ["group:shop"], "dst": ["tag:ingress-shop"], "ip": ["tcp:443"]}
	]
}`,
		},
		{
			name:    "only tags: nothing is denied by that, so nothing is made explicit",
			entries: []Entry{tag("tag web", "tag:web")},
			kinds:   []Kind{Added},
			doc:     "{\n  \"groups\": {},\n}\n",
			want:    "{\n  \"groups\": {},\n  // added by postern main for the entries below\n  \"tagOwners\": {\n    // managed by postern main: tag web (tag:web); edits here are undone\n    \"tag:web\": [\"tag:postern\"],\n  },\n}\n",
		},
		{
			name:    "acls alone permit: the grants section comes and goes",
			entries: shop()[:1],
			kinds:   []Kind{Added},
			doc:     "{\n  \"ACLs\": [\n    {\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]}\n  ]\n}",
			want: "{\n  \"ACLs\": [\n    {\"action\": \"accept\", \"src\": [\"*\"], \"dst\": [\"*:*\"]}\n  ],\n  // added by postern main for the entries below\n  \"grants\": [\n" +
				"    // managed by postern main: ingress default/shop (allow_from); edits here are undone\n    {\"src\": [\"group:shop\"], \"dst\": [\"tag:ingress-shop\"], \"ip\": [\"tcp:443\"]}\n  ]\n}",
		},
		{
			name:    "one-line list, and one that denies all",
			entries: shop()[:1],
			kinds:   []Kind{Added},
			doc:     `{"grants": []}`,
			want: "{\"grants\": [\n\t// managed by postern main: ingress default/shop (allow_from); edits here are undone\n" +
				"\t{\"src\": [\"group:shop\"], \"dst\": [\"tag:ingress-shop\"], \"ip\": [\"tcp:443\"]}\n]}",
		},
		{
			name:    "a comma on the next line, block comments that look like code",
			entries: shop()[:1],
			kinds:   []Kind{Added},
			doc:     "{\"grants\": [\n  {\"src\":[\"a@\"],\"dst\":[\"*\"],\"ip\":[\"*\"]}\n  , /* ], // \n */ ]}",
			want: "{\"grants\": [\n  {\"src\":[\"a@\"],\"dst\":[\"*\"],\"ip\":[\"*\"]}\n  , /* managed by postern main: ingress default/shop (allow_from); edits here are undone */ " +
				"{\"src\": [\"group:shop\"], \"dst\": [\"tag:ingress-shop\"], \"ip\": [\"tcp:443\"]}, /* ], // \n */ ]}",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, changes := merge(t, tt.doc, "main", tt.entries)
			if d := cmp.Diff(tt.want, out); d != "" {
				t.Errorf("document (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.kinds, kinds(changes)); d != "" {
				t.Errorf("changes (-want +got):\n%s", d)
			}
			if again, changes := merge(t, out, "main", tt.entries); again != out || len(changes) != 0 {
				t.Errorf("merging again: %v\n%s", kinds(changes), again)
			}
			back, _ := merge(t, out, "main", nil)
			if d := cmp.Diff(tt.doc, back); d != "" {
				t.Errorf("after taking it back (-want +got):\n%s", d)
			}
		})
	}
}

func merge(t *testing.T, doc, instance string, want []Entry) (string, []Change) {
	t.Helper()
	out, changes, err := Merge([]byte(doc), instance, want)
	if err != nil {
		t.Fatalf("Merge: %v\n%s", err, doc)
	}
	return string(out), changes
}

func kinds(changes []Change) []Kind {
	var ks []Kind
	for _, c := range changes {
		ks = append(ks, c.Kind)
	}
	return ks
}

func TestHandEditIsRepaired(t *testing.T) {
	out, _ := merge(t, "{\n  \"acls\": [],\n}\n", "main", shop())
	edited := strings.Replace(out, `{"src": ["group:shop"]`, "{\n      // just for today\n      \"src\": [\"*\"]", 1)
	if edited == out {
		t.Fatal("the edit didn't hit")
	}
	repaired, changes := merge(t, edited, "main", shop())
	if repaired != out {
		t.Errorf("repaired document (-want +got):\n%s", cmp.Diff(out, repaired))
	}
	if len(changes) != 1 || changes[0].Kind != Replaced || !strings.Contains(string(changes[0].Was), `"src":["*"]`) {
		t.Errorf("changes = %+v", changes)
	}
	// A member written twice is an edit too, whatever its first or last value is.
	twice := strings.Replace(out, `"dst": ["tag:ingress-shop"]`, `"dst": ["*"], "dst": ["tag:ingress-shop"]`, 1)
	if repaired, _ := merge(t, twice, "main", shop()); repaired != out {
		t.Errorf("a doubled member was left:\n%s", repaired)
	}
}

func TestFormattingIsNoEdit(t *testing.T) {
	out, _ := merge(t, "{\n  \"acls\": [],\n}\n", "main", shop())
	formatted := strings.Replace(out, `{"src": ["group:shop"], "dst": ["tag:ingress-shop"]`, "{\n      \"dst\": [\"tag:ingress-shop\"], // ours\n      \"src\": [ \"group:shop\" ]", 1)
	got, changes := merge(t, formatted, "main", shop())
	if formatted == out || got != formatted || len(changes) != 0 {
		t.Errorf("changes %v (-want +got):\n%s", kinds(changes), cmp.Diff(formatted, got))
	}
	if back, _ := merge(t, formatted, "main", nil); back != "{\n  \"acls\": [],\n}\n" {
		t.Errorf("removed to:\n%s", back)
	}
}

func TestForeignTagIsLeft(t *testing.T) {
	doc := "{\"acls\": [], \"tagOwners\": {\"tag:ingress-shop\": [\"group:eng\"]}}"
	out, changes := merge(t, doc, "main", shop()[1:])
	if out != doc {
		t.Errorf("document changed:\n%s", out)
	}
	want := []Change{{Kind: SatisfiedByForeign, Entry: shop()[1], Was: json.RawMessage(`["group:eng"]`)}}
	if d := cmp.Diff(want, changes); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	// Ours beside a foreign one would be the same member twice: ours goes.
	ours, _ := merge(t, `{"acls": [], "tagOwners": {}}`, "main", shop()[1:])
	both := strings.Replace(ours, `"tagOwners": {`, `"tagOwners": {"tag:ingress-shop": [],`, 1)
	out, changes = merge(t, both, "main", shop()[1:])
	if strings.Count(out, `"tag:ingress-shop"`) != 1 || !strings.Contains(out, `"tag:ingress-shop": []`) {
		t.Errorf("document:\n%s", out)
	}
	if d := cmp.Diff([]Kind{SatisfiedByForeign, Removed}, kinds(changes)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
}

func TestInstancesKeepApart(t *testing.T) {
	const doc = "{\n  \"grants\": [\n  ],\n}\n"
	one, _ := merge(t, doc, "one", shop())
	two, _ := merge(t, one, "two", []Entry{grant("ingress default/shop", "group:two", "tag:two"), tag("tag x", "tag:ingress-shop")})
	if back, _ := merge(t, two, "two", nil); back != one {
		t.Errorf("two removed more than its own (-want +got):\n%s", cmp.Diff(one, back))
	}
	only, _ := merge(t, two, "one", nil)
	owned, err := Owned([]byte(only))
	if err != nil || len(owned) != 1 || owned[0].Instance != "two" || owned[0].Owner != "ingress default/shop" {
		t.Errorf("Owned = %+v, %v", owned, err)
	}
	// The tag was one's when two asked for it; now that it is gone two gets its own.
	both, changes := merge(t, only, "two", []Entry{grant("ingress default/shop", "group:two", "tag:two"), tag("tag x", "tag:ingress-shop")})
	if d := cmp.Diff([]Kind{Added}, kinds(changes)); d != "" {
		t.Errorf("changes (-want +got):\n%s\n%s", d, both)
	}
}

// TestLastRuleStaysDenied (P13): whoever takes the last rule out must not open the tailnet.
func TestLastRuleStaysDenied(t *testing.T) {
	out, _ := merge(t, "{}", "main", shop())
	from := strings.Index(out, "\t\t// kept by")
	to := from + strings.Index(out[from:], "\t\t// managed by")
	denied := out[:from] + out[to:] // somebody followed the comment and removed the rule that allows all
	back, changes := merge(t, denied, "main", nil)
	n, err := Describe([]byte(back))
	if err != nil || n.AllowsAll || n.Rules != 0 {
		t.Errorf("Describe = %+v, %v for\n%s", n, err, back)
	}
	if d := cmp.Diff([]Kind{Removed, Removed}, kinds(changes)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	again, changes := merge(t, back, "main", shop())
	if d := cmp.Diff([]Kind{Added, Added}, kinds(changes)); d != "" {
		t.Errorf("adding again (-want +got):\n%s\n%s", d, again)
	}
}

// A person who narrowed the rule that allowed all keeps it when our last grant goes.
func TestEditedExplicitRuleStays(t *testing.T) {
	out, _ := merge(t, "{}", "main", shop())
	narrowed := strings.Replace(out, "autogroup:danger-all", "group:eng", 1)
	back, _ := merge(t, narrowed, "main", nil)
	if n, _ := Describe([]byte(back)); n.Rules != 1 || !strings.Contains(back, "group:eng") {
		t.Errorf("got %+v\n%s", n, back)
	}
}

func TestNullSections(t *testing.T) {
	out, changes := merge(t, `{"grants": null, "acls": null}`, "main", shop()[:1])
	if d := cmp.Diff([]Kind{MadeExplicit, Added}, kinds(changes)); d != "" {
		t.Errorf("changes (-want +got):\n%s\n%s", d, out)
	}
	back, _ := merge(t, out, "main", nil)
	if n, _ := Describe([]byte(back)); n.Rules != 1 || n.AllowsAll {
		t.Errorf("the explicit rule left a section that was there before: %+v\n%s", n, back)
	}
}

func TestOwnerOfTagChanges(t *testing.T) {
	out, _ := merge(t, "{\"acls\": []}", "main", []Entry{tag("tag x", "tag:x")})
	out, changes := merge(t, out, "main", []Entry{tag("ingress default/x", "tag:x")})
	if d := cmp.Diff([]Kind{Replaced}, kinds(changes)); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if owned, _ := Owned([]byte(out)); len(owned) != 1 || owned[0].Owner != "ingress default/x" {
		t.Errorf("Owned = %+v\n%s", owned, out)
	}
}

// TestMarkMustTouch: a mark that lost its entry must not take over what follows.
func TestMarkMustTouch(t *testing.T) {
	const mark = "// managed by postern main: ingress default/shop (allow_from); edits here are undone\n"
	for _, between := range []string{"\n", "// a rule of our own\n", "/* note */ "} {
		doc := "{\"grants\": [\n" + mark + between + "{\"src\": [\"a@\"], \"dst\": [\"*\"], \"ip\": [\"*\"]},\n]}"
		if owned, err := Owned([]byte(doc)); err != nil || len(owned) != 0 {
			t.Errorf("%q in between: owned %+v, %v", between, owned, err)
		}
	}
	doc := "{\"tagOwners\": {\n// managed by postern main: tag x (tag:x); edits here are undone\n\"tag:other\": [],\n}}"
	if owned, err := Owned([]byte(doc)); err != nil || len(owned) != 0 {
		t.Errorf("a mark of tag:x owns %+v, %v", owned, err)
	}
}

func TestMergeRefuses(t *testing.T) {
	ok := shop()[0]
	with := func(f func(*Entry)) []Entry { e := ok; f(&e); return []Entry{e} }
	tests := []struct {
		name, doc, instance string
		want                []Entry
		text                string
	}{
		{"no object", "[]", "main", nil, "want an object, got a list"},
		{"empty", "", "main", nil, "parsing policy document"},
		{"no list", `{"grants": {}}`, "main", shop(), `policy section "grants": want a list, got an object`},
		{"section twice", `{"grants": [], "Grants": []}`, "main", nil, "are the same one"},
		{"section twice, with a long s", `{"grants": [], "grantſ": []}`, "main", nil, "are the same one"},
		{"instance", "{}", "a: b", nil, `instance name "a: b"`},
		{"owner", "{}", "main", with(func(e *Entry) { e.Owner = "a */ b" }), "owner: want one line"},
		{"owner with a line break", "{}", "main", with(func(e *Entry) { e.Owner = "a\nb" }), "owner: want one line"},
		{"key", "{}", "main", with(func(e *Entry) { e.Key = "a)" }), "want no parentheses"},
		{"tag", "{}", "main", with(func(e *Entry) { e.Section = TagOwners }), `begins with "tag:"`},
		{"section", "{}", "main", with(func(e *Entry) { e.Section = "acls" }), "section: want"},
		{"value", "{}", "main", with(func(e *Entry) { e.Value = json.RawMessage(`[]`) }), "value: want an object in JSON"},
		{"no value", "{}", "main", with(func(e *Entry) { e.Value = nil }), "value: want an object in JSON"},
		{"twice", "{}", "main", []Entry{tag("a", "tag:x"), tag("b", "tag:x")}, `wanted twice: by "a" and by "b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := Merge([]byte(tt.doc), tt.instance, tt.want)
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("err = %v, want it to say %q; document %s", err, tt.text, out)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	got, err := Describe([]byte(`{
		"Groups": {"group:b": [], "group:a": ["x@"]}, "hosts": {"db": "10.0.0.1"}, "tagOwners": {"tag:x": []},
		"acls": [{}, {}], "grants": [{}], // three rules
	}`))
	want := Names{Groups: []string{"group:a", "group:b"}, Tags: []string{"tag:x"}, Hosts: []string{"db"}, Rules: 3}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("(-want +got):\n%s %v", d, err)
	}
	if got, _ := Describe([]byte(`{"acls": null, "groups": 1}`)); !got.AllowsAll {
		t.Errorf("Describe = %+v", got)
	}
	if got, err := Describe(AllowAll()); err != nil || got.AllowsAll || got.Rules != 1 {
		t.Errorf("AllowAll: %+v, %v", got, err)
	}
}
