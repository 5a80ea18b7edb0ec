package blueprint

import (
	"cmp"
	"slices"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Class says what kind of name a claim is for. Names of different classes never conflict.
type Class string

// The classes of claimed names (N6).
const (
	ClassDNS      Class = "dns"
	ClassHostname Class = "hostname"
	ClassTag      Class = "tag"
)

// Claim is one ingress's claim to a name.
type Claim struct {
	Owner desired.Key `json:"owner"`
	// Since orders the claims: the older claim holds the name, whatever became of the objects since.
	Since int64 `json:"since"`
}

// Claims holds who claims which name of a tailnet, oldest first. It is stored with the objects, since the age of a claim is
// not the age of its object: a declaration may take up a name later.
type Claims struct {
	Next int64              `json:"next"`
	Held map[string][]Claim `json:"held"`
}

func claimID(class Class, name string) string { return string(class) + ":" + name }

func (c Claims) clone() Claims {
	held := make(map[string][]Claim, len(c.Held))
	for id, claims := range c.Held {
		held[id] = slices.Clone(claims)
	}
	return Claims{Next: c.Next, Held: held}
}

// take records owner's claim to id, and keeps the age of one that is there.
func (c *Claims) take(id string, owner desired.Key) {
	for _, claim := range c.Held[id] {
		if claim.Owner == owner {
			return
		}
	}
	c.Next++
	if c.Held == nil {
		c.Held = map[string][]Claim{}
	}
	c.Held[id] = append(c.Held[id], Claim{Owner: owner, Since: c.Next})
	slices.SortFunc(c.Held[id], func(a, b Claim) int { return cmp.Compare(a.Since, b.Since) })
}

// drop forgets owner's claim to id.
func (c *Claims) drop(id string, owner desired.Key) {
	left := slices.DeleteFunc(c.Held[id], func(claim Claim) bool { return claim.Owner == owner })
	if len(left) == 0 {
		delete(c.Held, id)
		return
	}
	c.Held[id] = left
}

// holder is who holds id against owner: nil where owner holds it, or nobody else claims it.
func (c *Claims) holder(id string, owner desired.Key) *desired.Key {
	claims := c.Held[id]
	if len(claims) == 0 || claims[0].Owner == owner {
		return nil
	}
	return &claims[0].Owner
}
