package blueprint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// resolve finds the object that a reference means.
func (c *Compilation) resolve(ref desired.Reference) (desired.Key, bool) {
	for _, candidate := range ref.Candidates {
		if _, ok := c.objects[candidate]; ok {
			return candidate, true
		}
	}
	return desired.Key{}, false
}

// missing refuses references to what is not there, with the names that are and the nearest of them (T8), and to what is being
// deleted: only what is ending itself may still need that.
func (c *Compilation) missing(refs []desired.Reference, ending bool) []Problem {
	var problems []Problem
	for _, ref := range refs {
		found, ok := c.resolve(ref)
		if ok && c.objects[found].Deleting && !ending {
			problems = append(problems, Problem{Reason: desired.ReasonReferenceMissing, Refuse: true, FieldError: desired.FieldError{
				Path: ref.Path, Value: ref.Value,
				Rule: fmt.Sprintf("the %s of this name is being deleted", found.Kind), Remedy: "refer to another, or wait until it is gone and declare it anew",
			}})
		}
		if ok || !desired.Known(ref.Value) {
			continue
		}
		kind := ref.Candidates[0].Kind
		var names []string
		for _, o := range c.Objects(kind) {
			if key := o.Spec.Key(); key.Namespace == desired.NoNamespace || key.Namespace == ref.Candidates[0].Namespace {
				names = append(names, key.Name)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names) // one in the namespace, one in none
		problems = append(problems, Problem{Reason: desired.ReasonReferenceMissing, Refuse: true, FieldError: desired.FieldError{
			Path: ref.Path, Value: ref.Value,
			Rule:   fmt.Sprintf("there is no %s of this name; there is %s", kind, list(names)),
			Remedy: suggest(ref.Value, names, fmt.Sprintf("declare it, and refer to postern_%s.<name>.name so that it comes first", kind)),
		}})
	}
	return problems
}

// Missing gives the verdicts on an object's references.
func (c *Compilation) Missing(o desired.Object) []Problem { return c.missing(o.References(), false) }

// maxListed is how many names a message lists.
const maxListed = 20

func list(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxListed:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}

// suggest names the nearest of the names that exist, or falls back.
func suggest(value string, names []string, otherwise string) string {
	best, distance := "", len(value)/2+1
	for _, name := range slices.Sorted(slices.Values(names)) {
		if d := editDistance(value, name); d < distance {
			best, distance = name, d
		}
	}
	if best == "" {
		return otherwise
	}
	return fmt.Sprintf("did you mean %q? If not, %s", best, otherwise)
}

// editDistance is the Levenshtein distance of two names in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
