// Package desired is the contract of Postern: the kinds of object that a user declares, their attribute names, what makes
// a declaration valid, the names that follow from it, and the conditions that are reported about it. The provider, the
// API, the agent and every tool read the same structs. It imports the standard library and golang.org/x/net/idna only.
//
// Three rules hold for every spec. It is stored as it was written: a default is applied where it is read (the With… and
// effective accessors), never stored. Absent, null and empty are different (omitzero, never omitempty). And nothing in a
// spec is computed: what the agent reports lives beside the spec.
package desired

import (
	"cmp"
	"fmt"
	"strings"
)

// Kind names a kind of declared object, as it stands in API paths and in Terraform type names.
type Kind string

// The kinds that exist.
const (
	KindTailnet Kind = "tailnet"
	KindIngress Kind = "ingress"
	KindIssuer  Kind = "issuer"
)

// NoNamespace is the namespace segment of an object that has none.
const NoNamespace = "-"

// DefaultNamespace is the namespace of an ingress that names none.
const DefaultNamespace = "default"

// Key identifies a declared object. Namespace is NoNamespace where the object has none.
type Key struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// ID is the object's id in Terraform: "namespace/name", or "name" where there is no namespace.
func (k Key) ID() string {
	if k.Namespace == NoNamespace {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// String names the object in messages, for example "ingress shop-dev/shop".
func (k Key) String() string { return string(k.Kind) + " " + k.ID() }

// Path is the key in store keys and API paths: "ingress/shop-dev/shop".
func (k Key) Path() string { return string(k.Kind) + "/" + k.Namespace + "/" + k.Name }

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// ParseKey reads the namespace and name of a kind as they stand in an API path, and refuses what no object can have.
func ParseKey(kind Kind, namespace, name string) (Key, error) {
	info, ok := Lookup(kind)
	if !ok {
		return Key{}, fmt.Errorf("kind %q: there is no such kind; there are %s", kind, strings.Join(kindNames(), ", "))
	}
	if err := labelRule(name); err != nil {
		return Key{}, fmt.Errorf("%s name %q: %w", kind, name, err)
	}
	if namespace == NoNamespace {
		if info.Namespace == NamespaceAlways {
			return Key{}, fmt.Errorf("%s %s: a namespace is needed, for example %s/%s", kind, name, DefaultNamespace, name)
		}
		return Key{Kind: kind, Namespace: NoNamespace, Name: name}, nil
	}
	if info.Namespace == NamespaceNever {
		return Key{}, fmt.Errorf("%s %s/%s: a %s has no namespace; use %q", kind, namespace, name, kind, name)
	}
	if err := labelRule(namespace); err != nil {
		return Key{}, fmt.Errorf("%s namespace %q: %w", kind, namespace, err)
	}
	return Key{Kind: kind, Namespace: namespace, Name: name}, nil
}

// ParseID reads an id as a user gives it to import: "name" or "namespace/name".
func ParseID(kind Kind, id string) (Key, error) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok {
		info, _ := Lookup(kind)
		namespace, name = NoNamespace, id
		if info.Namespace == NamespaceAlways {
			namespace = DefaultNamespace
		}
	}
	return ParseKey(kind, namespace, name)
}

// Value is v's value, or otherwise where v is nil: how a default is applied where a spec is read.
func Value[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}
