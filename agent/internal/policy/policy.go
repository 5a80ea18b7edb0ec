// Package policy keeps entries that Postern owns inside a tailnet's policy document, which is HuJSON that people write
// by hand. It is pure: bytes in, bytes out. Every byte that Postern did not write is kept (P2, P5).
//
// # Ownership
//
// An owned entry is an element of "grants" or a member of "tagOwners" with a comment right above it:
//
//	// managed by postern main: ingress default/shop (allow_from); edits here are undone
//	{"src": ["group:shop"], "dst": ["tag:ingress-shop"], "ip": ["tcp:443"]},
//
// The comment owns the entry that follows it with nothing but white space, and no blank line, in between; in a list
// that is written on one line it is a block comment. All other entries are foreign and stay as they are, those of another
// instance included. A person who takes the comment away takes the entry over. One who takes the entry away and leaves the
// comment right above a foreign grant gives that grant to Postern: nothing in the text tells this from an edit.
//
// # What a document without rules means
//
// Headscale 0.29.2 lets everyone reach everything if neither "acls" nor "grants" is there or both are null
// (hscontrol/policy/v2/policy.go, updateLocked: pol.ACLs == nil && pol.Grants == nil). One of them as an empty list denies
// all; controlplane/headscale checks both against the real server and real nodes. So there are two cliffs (P13):
//
//   - The first grant in a document without rules would shut everybody else out. [Merge] first writes what the document
//     meant as a rule ([MadeExplicit]).
//   - The section that held the last rule would, if it were taken out, open everything. Merge takes a section out
//     only where the meaning stays.
package policy

import "encoding/json"

// Section is a part of the document that can hold owned entries.
type Section string

// The sections.
const (
	Grants    Section = "grants"    // a list; an entry is an element
	TagOwners Section = "tagOwners" // an object; an entry is a member and its key the tag
)

// Entry is one thing that an owner keeps in the document.
type Entry struct {
	Owner   string // what manages it, e.g. "ingress default/shop"; one line, without "*/"
	Section Section
	Key     string          // TagOwners: the tag. Grants: an id that is stable within the owner, e.g. "allow_from"
	Value   json.RawMessage // Grants: an object. TagOwners: a list
}

// Marked is an entry with the instance whose mark it carries.
type Marked struct {
	Instance string
	Entry
}

// Kind says what happened to an entry.
type Kind string

// The kinds of change.
const (
	Added    Kind = "added"
	Removed  Kind = "removed"
	Replaced Kind = "replaced" // the wanted value changed, or somebody edited the entry by hand
	// SatisfiedByForeign means that the tag is in the document already, not as ours, and was left as it is.
	SatisfiedByForeign Kind = "satisfied by foreign"
	// MadeExplicit means that the document had no rules, which allows everything; that is now its first grant, since the grants
	// added with it would otherwise have denied all else.
	MadeExplicit Kind = "made explicit"
	// MadeImplicit means that the rule of MadeExplicit left the document with the last other grant. The meaning is the same.
	MadeImplicit Kind = "made implicit"
)

// Change is one difference between the document before and after.
type Change struct {
	Kind  Kind
	Entry Entry
	// Was is the value before, of Removed, Replaced and SatisfiedByForeign.
	Was json.RawMessage
	// Instance is whose the entry is for SatisfiedByForeign; empty if a person wrote it.
	Instance string
}

// allowAllRule compiles on Headscale 0.29.2 to the same packet filter as a document without rules. With "*" as the source
// it would be less: that leaves out addresses behind subnet routers.
const allowAllRule = `{"src": ["autogroup:danger-all"], "dst": ["*"], "ip": ["*"]}`

// AllowAll returns the document that says what the absence of a policy means on Headscale. It is what to merge into where
// the control plane has none.
func AllowAll() []byte {
	return []byte(`{
	"grants": [
		// Before this document there was no policy, which lets everyone reach everything. This rule says the same, so
		// that the first policy cuts nobody off; remove it to allow only what is listed.
		` + allowAllRule + `,
	],
}
`)
}
