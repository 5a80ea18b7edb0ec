package desired

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Step is one step into a spec: an attribute, a map key or a list index. Exactly one is set.
type Step struct {
	Attribute string  `json:"attribute,omitzero"`
	Key       *string `json:"key,omitzero"`
	Index     *int    `json:"index,omitzero"`
}

// Path points at a value inside a spec. The empty path is the object itself.
type Path []Step

// At starts a path at an attribute of the object.
func At(attribute string) Path { return Path{}.Attribute(attribute) }

// Attribute extends the path by an attribute. It never changes p.
func (p Path) Attribute(name string) Path { return p.with(Step{Attribute: name}) }

// Key extends the path by a map key.
func (p Path) Key(key string) Path { return p.with(Step{Key: &key}) }

// Index extends the path by a list index.
func (p Path) Index(i int) Path { return p.with(Step{Index: &i}) }

func (p Path) with(s Step) Path { return append(append(make(Path, 0, len(p)+1), p...), s) }

// String writes the path as a user writes it: exposes["web"].backend.targets[0].
func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.Key != nil:
			b.WriteString("[" + strconv.Quote(*s.Key) + "]")
		case s.Index != nil:
			b.WriteString("[" + strconv.Itoa(*s.Index) + "]")
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Attribute)
		}
	}
	return b.String()
}

// FieldError is a fault of a declaration that its author can mend.
type FieldError struct {
	// Path is the attribute.
	Path Path `json:"path"`
	// Value is the value at fault as the user knows it: written, or rendered from what was written. Empty where it is absent.
	Value string `json:"value,omitzero"`
	// Rule says what must hold.
	Rule string `json:"rule"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
}

func (e *FieldError) Error() string {
	return e.Path.String() + ": " + e.Detail()
}

// Detail is the message without the attribute, for where the attribute is pointed at by other means.
func (e *FieldError) Detail() string {
	if e.Value == "" {
		return e.Rule + "; " + e.Remedy
	}
	return strconv.Quote(e.Value) + ": " + e.Rule + "; " + e.Remedy
}

// Warning is what is valid and yet likely to surprise.
type Warning struct {
	Path    Path   `json:"path"`
	Summary string `json:"summary"`
	Detail  string `json:"detail"`
}

// FieldErrors gives the field errors in err, through joined and wrapped errors, and what else err holds. What wraps a field
// error is left out, since the error is said at its attribute.
func FieldErrors(err error) (fields []*FieldError, rest error) {
	if err == nil {
		return nil, nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var others []error
		for _, e := range joined.Unwrap() {
			f, r := FieldErrors(e)
			fields = append(fields, f...)
			others = append(others, r)
		}
		return fields, errors.Join(others...)
	}
	if inner := errors.Unwrap(err); inner != nil {
		if fields, rest = FieldErrors(inner); len(fields) > 0 {
			return fields, rest
		}
		return nil, err
	}
	var field *FieldError
	if errors.As(err, &field) {
		return []*FieldError{field}, nil
	}
	return nil, err
}

// faults collects field errors.
type faults struct{ errs []error }

func (f *faults) add(path Path, value, rule, remedy string) {
	f.errs = append(f.errs, &FieldError{Path: path, Value: value, Rule: rule, Remedy: remedy})
}

func (f *faults) addf(path Path, value, remedy, rule string, args ...any) {
	f.add(path, value, fmt.Sprintf(rule, args...), remedy)
}

func (f *faults) err() error { return errors.Join(f.errs...) }
