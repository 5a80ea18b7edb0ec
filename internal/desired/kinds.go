package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Object is a declared object of any kind.
type Object interface {
	// Key identifies the object. It must be called on a decoded object, valid or not.
	Key() Key
	// Validate answers with every fault of the object taken alone, joined; each is a *FieldError.
	Validate() error
	// Warnings says what is valid and yet likely to surprise.
	Warnings() []Warning
	// References lists the objects that must exist for this one to work (T8).
	References() []Reference
	// Secrets gives the object's write-only values by name. They travel beside the spec, never in it (C9).
	Secrets() map[string]*Secret
}

// Reference is one object naming another. The first of Candidates that exists is meant.
type Reference struct {
	Path       Path
	Value      string
	Candidates []Key
}

// Namespacing says whether objects of a kind lie in a namespace.
type Namespacing int

// How a kind is namespaced.
const (
	NamespaceNever Namespacing = iota
	NamespaceOptional
	NamespaceAlways
)

// KindInfo describes a kind: the row that everything that works on kinds reads.
type KindInfo struct {
	Kind      Kind
	Namespace Namespacing
	// New makes an empty object to decode into.
	New func() Object
}

// Kinds lists every kind, in the order in which one may refer to another: later ones refer to earlier ones.
func Kinds() []KindInfo {
	return []KindInfo{
		{Kind: KindIssuer, Namespace: NamespaceOptional, New: func() Object { return new(Issuer) }},
		{Kind: KindTailnet, Namespace: NamespaceNever, New: func() Object { return new(Tailnet) }},
		{Kind: KindIngress, Namespace: NamespaceAlways, New: func() Object { return new(Ingress) }},
	}
}

// Lookup finds a kind's row.
func Lookup(kind Kind) (KindInfo, bool) {
	for _, info := range Kinds() {
		if info.Kind == kind {
			return info, true
		}
	}
	return KindInfo{}, false
}

func kindNames() []string {
	var names []string
	for _, info := range Kinds() {
		names = append(names, string(info.Kind))
	}
	return names
}

// UnknownFieldError says that a document has a field that this version does not know. A field is refused by name and
// never dropped (X17).
type UnknownFieldError struct {
	Kind  Kind
	Field string
}

func (e *UnknownFieldError) Error() string {
	return fmt.Sprintf("%s: field %q is not known to this version; upgrade the side that is older, or leave the field out", e.Kind, e.Field)
}

// Decode reads a spec strictly: an unknown field is an *UnknownFieldError, and nothing may follow the document.
func Decode(kind Kind, data []byte) (Object, error) {
	info, ok := Lookup(kind)
	if !ok {
		return nil, fmt.Errorf("kind %q: there is no such kind", kind)
	}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil, fmt.Errorf("decoding %s: a document is an object, not null", kind)
	}
	object := info.New()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(object); err != nil {
		if field, ok := unknownField(err); ok {
			return nil, &UnknownFieldError{Kind: kind, Field: field}
		}
		return nil, fmt.Errorf("decoding %s: %w", kind, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("decoding %s: something follows the document", kind)
	}
	return object, nil
}

// unknownField reads the field's name from encoding/json's error, which has no type of its own for it.
func unknownField(err error) (string, bool) {
	quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field ")
	if field, err := strconv.Unquote(quoted); err == nil {
		return field, ok
	}
	return quoted, ok
}
