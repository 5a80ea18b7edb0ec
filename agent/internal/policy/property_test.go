package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
)

// TestAddThenRemove walks each policy in testdata through random additions, changes and removals of three instances. At
// every step nothing foreign may have changed; at the end, with nothing of ours left, the file is as it was.
func TestAddThenRemove(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*json")
	if err != nil || len(files) < 10 {
		t.Fatalf("policies in testdata: %d, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			doc, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			seeds := uint64(20)
			if len(doc) > 10_000 {
				seeds = 2
			}
			for seed := range seeds {
				walk(t, string(doc), rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
}

func walk(t *testing.T, doc string, rnd *rand.Rand) {
	t.Helper()
	have := map[string][]Entry{"one": nil, "two": nil, "three.x": nil}
	names := []string{"one", "two", "three.x"}
	at := doc
	step := func(instance string, want []Entry) {
		out, _ := merge(t, at, instance, want)
		again, changes := merge(t, out, instance, want)
		if again != out || slices.ContainsFunc(changes, func(c Change) bool { return c.Kind != SatisfiedByForeign }) {
			t.Fatalf("merging again changes it: %v\n%s", kinds(changes), cmp.Diff(out, again))
		}
		have[instance], at = want, out
		checkForeign(t, doc, out)
	}
	for range 8 {
		instance := names[rnd.IntN(len(names))]
		var want []Entry
		for i := range rnd.IntN(4) {
			owner := fmt.Sprintf("ingress ns/%s-%d (blue)", instance, i)
			want = append(want, grant(owner, fmt.Sprintf("group:g%d", rnd.IntN(2)), fmt.Sprintf("tag:%s-%d", instance, i)))
			if rnd.IntN(2) == 0 {
				want = append(want, tag(owner, fmt.Sprintf("tag:%s-%d", instance, i)))
			}
		}
		rnd.Shuffle(len(want), func(i, j int) { want[i], want[j] = want[j], want[i] })
		step(instance, want)
	}
	rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, instance := range names {
		step(instance, nil)
	}
	if d := cmp.Diff(doc, at); d != "" {
		t.Fatalf("with everything removed (-before +after):\n%s", d)
	}
}

// checkForeign compares by other means than Merge: the standard decoder, and the text of all comments.
func checkForeign(t *testing.T, doc, out string) {
	t.Helper()
	was, is := decode(t, doc), decode(t, out)
	owned, err := Owned([]byte(out))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range owned {
		if m.Section == TagOwners {
			delete(is[fold(string(TagOwners))].(map[string]any), m.Key)
			continue
		}
		var v any
		if err := json.Unmarshal(m.Value, &v); err != nil {
			t.Fatal(err)
		}
		drop(is, v)
	}
	if strings.Contains(out, keptPrefix) {
		var v any
		if err := json.Unmarshal([]byte(allowAllRule), &v); err != nil {
			t.Fatal(err)
		}
		drop(is, v)
	}
	for _, s := range []Section{Grants, TagOwners} { // an empty section that was not there
		if _, there := was[fold(string(s))]; !there && reflect.ValueOf(is[fold(string(s))]).IsValid() && reflect.ValueOf(is[fold(string(s))]).Len() == 0 {
			delete(is, fold(string(s)))
		}
	}
	if d := cmp.Diff(was, is); d != "" {
		t.Fatalf("foreign content (-before +after):\n%s\n%s", d, out)
	}
	if d := cmp.Diff(comments(t, doc), comments(t, out)); d != "" {
		t.Fatalf("foreign comments (-before +after):\n%s\n%s", d, out)
	}
}

func drop(doc map[string]any, rule any) {
	name := fold(string(Grants))
	list := doc[name].([]any)
	i := slices.IndexFunc(list, func(v any) bool { return reflect.DeepEqual(v, rule) })
	doc[name] = slices.Delete(list, i, i+1)
}

func decode(t *testing.T, doc string) map[string]any {
	t.Helper()
	std, err := hujson.Standardize([]byte(doc))
	if err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	var m map[string]any
	if err := json.Unmarshal(std, &m); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	folded := make(map[string]any)
	for k, v := range m {
		folded[fold(k)] = v
	}
	return folded
}

// comments returns the comments of doc that are not ours, in order.
func comments(t *testing.T, doc string) []string {
	t.Helper()
	v, err := hujson.Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	extra := func(e hujson.Extra) {
		for _, tok := range scan(e, 0, len(e)) {
			text := string(e[tok.start:tok.end])
			if (tok.kind == lineComment || tok.kind == blockComment) && !strings.Contains(text, "by postern ") {
				all = append(all, text)
			}
		}
	}
	var visit func(v hujson.Value)
	visit = func(v hujson.Value) {
		extra(v.BeforeExtra)
		switch vv := v.Value.(type) {
		case *hujson.Object:
			for _, m := range vv.Members {
				visit(m.Name)
				visit(m.Value)
			}
			extra(vv.AfterExtra)
		case *hujson.Array:
			for _, e := range vv.Elements {
				visit(e)
			}
			extra(vv.AfterExtra)
		}
		extra(v.AfterExtra)
	}
	visit(v)
	return all
}

func FuzzMerge(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(doc) < 4096 {
			f.Add(string(doc))
		}
	}
	for _, doc := range []string{"{}", "{\n}", "{ }", `{"grants":[]}`, `{"grants":[ ], "tagOwners":{ /* x */ }}`, `{"grants":null,}`, "{\"grants\":[//\n]}", "{\"grants\":[\r\n{}//\r\n]}", "{\r}"} {
		f.Add(doc)
		out, _, err := Merge([]byte(doc), "main", shop())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(out))
	}
	f.Fuzz(mergeAndBack)
}

// FuzzLayout builds documents that always parse, with white space, comments and commas where the bytes say.
func FuzzLayout(f *testing.F) {
	f.Add([]byte{})
	for i := range byte(8) {
		f.Add([]byte{i, i, 1, i, i, i, 1, i, 1, i, i, i, i, 1, i, i, 1, i, i, i, i, i, i, i, i})
	}
	f.Fuzz(func(t *testing.T, layout []byte) {
		next := func(n int) int {
			if len(layout) == 0 {
				return 0
			}
			c := layout[0]
			layout = layout[1:]
			return int(c) % n
		}
		extras := []string{"", " ", "\n", "\r\n\t", "// c, ]\n", "/* } , */", "\n  // c\n  ", " /* a\n*/\n"}
		extra := func() string { return extras[next(len(extras))] }
		list := func(brackets string, items ...string) string {
			b := brackets[:1] + extra()
			n := next(len(items) + 1)
			for i, it := range items[:n] {
				b += extra() + it + extra()
				if i < n-1 || next(2) == 1 {
					b += "," + extra()
				}
			}
			return b + extra() + brackets[1:]
		}
		member := func(name, value string) string { return `"` + name + `"` + extra() + ":" + extra() + value }
		grants := list("[]", "{}", `{"src":[]}`)
		tags := list("{}", member("tag:a", "[]"), member("tag:b", "[]"))
		sections := []string{member("grants", grants), member("tagOwners", tags), member("acls", list("[]", "{}"))}
		first := next(3)
		sections = append(sections[first:], sections[:first]...)
		mergeAndBack(t, extra()+list("{}", sections...)+extra())
	})
}

// mergeAndBack adds the entries of two instances to a document and takes them out again.
func mergeAndBack(t *testing.T, doc string) {
	if _, _, err := Merge([]byte(doc), "main", nil); err != nil {
		return
	}
	for _, instance := range []string{"main", "other"} {
		out, _, err := Merge([]byte(doc), instance, shop())
		if err != nil {
			if strings.Contains(err.Error(), errDamaged.Error()) {
				t.Fatalf("%v\n%q", err, doc)
			}
			return
		}
		again, changes, err := Merge(out, instance, shop())
		if err != nil || string(again) != string(out) || slices.ContainsFunc(changes, func(c Change) bool { return c.Kind != SatisfiedByForeign }) {
			t.Fatalf("merging again: %v %v\n%q\n%q", kinds(changes), err, out, again)
		}
		back, _, err := Merge(out, instance, nil)
		if err != nil {
			t.Fatalf("taking it back: %v\n%q", err, out)
		}
		if strings.Contains(doc, "by postern ") {
			return // not all of it is foreign
		}
		// null can hold nothing, so it is replaced for good; a carriage return alone becomes part of our line break.
		exact := !strings.Contains(doc, "null") && strings.Count(doc, "\r") == strings.Count(doc, "\r\n")
		if exact && string(back) != doc {
			t.Fatalf("taking it back (-before +after):\n%s", cmp.Diff(doc, string(back)))
		}
		was, err := Describe([]byte(doc))
		is, err2 := Describe(back)
		if err != nil || err2 != nil || !was.AllowsAll && is.AllowsAll {
			t.Fatalf("it allows all now, and did not: %v %v\n%q\n%q", err, err2, doc, back)
		}
	}
}

// BenchmarkMerge merges 200 entries into a document of 1 MiB: the first time, and when nothing is to do.
func BenchmarkMerge(b *testing.B) {
	var doc strings.Builder
	doc.WriteString("{\n\t\"tagOwners\": {\n")
	for i := range 4000 {
		fmt.Fprintf(&doc, "\t\t\"tag:service-%d\": [\"group:team-%d\"], // team %d\n", i, i%50, i%50)
	}
	doc.WriteString("\t},\n\t\"grants\": [\n")
	for i := 0; doc.Len() < 1<<20; i++ {
		fmt.Fprintf(&doc, "\t\t// rule %d\n\t\t{\"src\": [\"group:team-%d\"], \"dst\": [\"tag:service-%d\"], \"ip\": [\"tcp:443\", \"udp:443\"]},\n", i, i%50, i%4000)
	}
	doc.WriteString("\t],\n}\n")
	var want []Entry
	for i := range 100 {
		owner := fmt.Sprintf("ingress default/app-%d", i)
		want = append(want, grant(owner, "group:eng", fmt.Sprintf("tag:app-%d", i)), tag(owner, fmt.Sprintf("tag:app-%d", i)))
	}
	merged, _, err := Merge([]byte(doc.String()), "main", want)
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		doc  []byte
	}{{"add", []byte(doc.String())}, {"same", merged}} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.doc)))
			for b.Loop() {
				if _, _, err := Merge(bb.doc, "main", want); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
