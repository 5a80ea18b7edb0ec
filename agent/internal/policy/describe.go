package policy

import (
	"slices"

	"github.com/tailscale/hujson"
)

// Owned returns every entry of the document that carries a mark, of any instance, in the document's order.
func Owned(doc []byte) ([]Marked, error) {
	d, err := parse(doc)
	if err != nil {
		return nil, err
	}
	var all []Marked
	for _, s := range []Section{Grants, TagOwners} {
		l, _, err := d.entries(s)
		if err != nil {
			return nil, err
		}
		for i := range l.items {
			if it := &l.items[i]; it.mark != nil && it.mark.kind == markOwned {
				all = append(all, Marked{Instance: it.mark.instance, Entry: it.entry(s)})
			}
		}
	}
	return all, nil
}

// Names is what rules may refer to in a document, each list sorted.
type Names struct {
	Groups []string // "group:eng"
	Tags   []string // "tag:web": those with owners
	Hosts  []string
	// Rules counts the elements of acls and grants.
	Rules int
	// AllowsAll says that there is neither acls nor grants, which lets everyone reach everything.
	AllowsAll bool
}

// Describe lists the names that the document defines, for checks at plan time.
func Describe(doc []byte) (Names, error) {
	d, err := parse(doc)
	if err != nil {
		return Names{}, err
	}
	n := Names{
		Groups:    d.memberNames("groups"),
		Tags:      d.memberNames(TagOwners),
		Hosts:     d.memberNames("hosts"),
		AllowsAll: d.ruleless(),
	}
	for _, s := range []Section{Grants, "acls"} {
		if it := d.section(s); it != nil {
			if rules, ok := it.value.Value.(*hujson.Array); ok {
				n.Rules += len(rules.Elements)
			}
		}
	}
	return n, nil
}

func (d *document) memberNames(s Section) []string {
	it := d.section(s)
	if it == nil {
		return nil
	}
	obj, ok := it.value.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	var names []string
	for _, m := range obj.Members {
		names = append(names, literal(m.Name))
	}
	slices.Sort(names)
	return names
}
