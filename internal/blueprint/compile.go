package blueprint

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Compilation is a blueprint that is kept as objects come and go. A change costs what it touches: an ingress its own
// exposes, a tailnet its own ingresses. It is not safe for concurrent use.
type Compilation struct {
	objects map[desired.Key]Object
	facts   map[string]Facts
	claims  map[string]*Claims
	// rendered holds each ingress as it is taken alone with its tailnet; verdicts on others are added when it is read.
	rendered  map[desired.Key]*rendering
	onTailnet map[string]map[desired.Key]bool
}

// Compile makes the blueprint of a snapshot. The snapshot is not changed; its specs are kept, and must not change either.
func Compile(s Snapshot) *Compilation {
	c := &Compilation{
		objects: map[desired.Key]Object{}, facts: maps.Clone(s.Facts), claims: map[string]*Claims{},
		rendered: map[desired.Key]*rendering{}, onTailnet: map[string]map[desired.Key]bool{},
	}
	if c.facts == nil {
		c.facts = map[string]Facts{}
	}
	for tailnet, claims := range s.Claims {
		kept := claims.clone()
		c.claims[tailnet] = &kept
	}
	objects := slices.SortedFunc(slices.Values(s.Objects), byAge)
	for _, o := range objects {
		c.objects[o.Spec.Key()] = o
	}
	for _, o := range objects {
		if in, ok := o.Spec.(*desired.Ingress); ok {
			c.render(in, o)
		}
	}
	c.dropStale()
	return c
}

// byAge puts older objects first, so that claims made at once have a fixed order.
func byAge(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Created, b.Created), a.Spec.Key().Compare(b.Spec.Key()))
}

// dropStale forgets the claims of ingresses that are no longer there or claim other names now.
func (c *Compilation) dropStale() {
	for tailnet, claims := range c.claims {
		for id, held := range claims.Held {
			for _, claim := range slices.Clone(held) {
				r := c.rendered[claim.Owner]
				if r == nil || r.in.Tailnet != tailnet || !slices.Contains(r.claims, id) {
					claims.drop(id, claim.Owner)
				}
			}
		}
	}
}

// Put adds or replaces an object. Its spec is kept, and must not change.
func (c *Compilation) Put(o Object) {
	key := o.Spec.Key()
	c.objects[key] = o
	switch spec := o.Spec.(type) {
	case *desired.Ingress:
		c.render(spec, o)
	case *desired.Tailnet:
		c.renderTailnet(spec.Name)
	}
}

// Delete removes an object.
func (c *Compilation) Delete(key desired.Key) {
	delete(c.objects, key)
	switch key.Kind {
	case desired.KindIngress:
		c.forget(key)
	case desired.KindTailnet:
		c.renderTailnet(key.Name)
	}
}

// SetFacts records what was observed of a tailnet.
func (c *Compilation) SetFacts(tailnet string, f Facts) { c.facts[tailnet] = f }

// Facts is what is known of a tailnet.
func (c *Compilation) Facts(tailnet string) Facts { return c.facts[tailnet] }

// Object finds a declared object.
func (c *Compilation) Object(key desired.Key) (Object, bool) {
	o, ok := c.objects[key]
	return o, ok
}

// Objects lists the objects of a kind in the order of their keys.
func (c *Compilation) Objects(kind desired.Kind) []Object {
	var out []Object
	for key, o := range c.objects {
		if key.Kind == kind {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Object) int { return a.Spec.Key().Compare(b.Spec.Key()) })
	return out
}

// Claims gives the claims of every tailnet, to be stored with the objects that they follow from. The caller owns them.
func (c *Compilation) Claims() map[string]Claims {
	out := make(map[string]Claims, len(c.claims))
	for tailnet, claims := range c.claims {
		out[tailnet] = claims.clone()
	}
	return out
}

func (c *Compilation) tailnet(name string) *desired.Tailnet {
	o, ok := c.objects[desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: name}]
	if !ok {
		return nil
	}
	t, _ := o.Spec.(*desired.Tailnet)
	return t
}

func (c *Compilation) renderTailnet(name string) {
	var objects []Object
	for key := range c.onTailnet[name] {
		objects = append(objects, c.objects[key])
	}
	slices.SortFunc(objects, byAge)
	for _, o := range objects {
		if in, ok := o.Spec.(*desired.Ingress); ok {
			c.render(in, o)
		}
	}
}

// render compiles an ingress alone and moves its claims from what it claimed before to what it claims now.
func (c *Compilation) render(in *desired.Ingress, o Object) {
	key := in.Key()
	old := c.rendered[key]
	now := renderIngress(in, c.tailnet(in.Tailnet))
	if o.Deleting {
		now.ending = true
		// The names are free at once. The identity is not, until the device is gone (P11).
		now.claims = slices.DeleteFunc(now.claims, func(id string) bool { return strings.HasPrefix(id, claimID(ClassDNS, "")) })
		if o.Released {
			now.claims = nil
		}
	}
	if old != nil && old.in.Tailnet != in.Tailnet {
		c.forget(key)
		old = nil
	}
	claims := c.claims[in.Tailnet]
	if claims == nil {
		claims = &Claims{}
		c.claims[in.Tailnet] = claims
	}
	for _, id := range now.claims {
		claims.take(id, key)
	}
	if old != nil {
		for _, id := range old.claims {
			if !slices.Contains(now.claims, id) {
				claims.drop(id, key)
			}
		}
	}
	c.rendered[key] = now
	if c.onTailnet[in.Tailnet] == nil {
		c.onTailnet[in.Tailnet] = map[desired.Key]bool{}
	}
	c.onTailnet[in.Tailnet][key] = true
}

func (c *Compilation) forget(key desired.Key) {
	old := c.rendered[key]
	if old == nil {
		return
	}
	for _, id := range old.claims {
		c.claims[old.in.Tailnet].drop(id, key)
	}
	delete(c.rendered, key)
	delete(c.onTailnet[old.in.Tailnet], key)
}

// Ingress is what a declared ingress comes to among all others; nil where there is none. The caller owns it.
func (c *Compilation) Ingress(key desired.Key) *Ingress {
	r := c.rendered[key]
	if r == nil {
		return nil
	}
	return c.judge(r)
}

// Preview is what an ingress would come to if it were declared, without its claims being recorded. It serves a
// declaration that is known in part, whose key may not be known yet.
//
// Text that is not known holds desired.Unknown, and so does all text made from it. What such a declaration and its tailnet
// come to stands for what they will come to once the text is known, or is absent after all, as long as that is not refused:
//
//   - DNSName, Hostname, Tag and Namespace stand where they are known.
//   - Tags stands where each entry is known. Hosts does so too where each expose's mode is known: one more host moves the others.
//   - Of an endpoint whose mode is known, each of DNSName, URL, Mode and Port stands where it is known. DNSAliases stands where
//     each entry is known, and DNSName is known or there is no alias: an alias that equals the name is left out.
//   - Each list of Grant stands where its entries are known, IP where each mode is known as well.
//   - A problem whose value, rule and remedy are known stands where the key is known. One that refuses means a refusal, if
//     perhaps for something that comes before it.
//   - Routes and Certificates say what to run, and nothing before all is known.
//
// Nothing stands while the tailnet's name is not known, or there is no such tailnet. A number, a bool or a collection that is
// not known leaves no mark: whoever leaves it out keeps count of what depends on it.
func (c *Compilation) Preview(in *desired.Ingress) *Ingress {
	return c.judge(renderIngress(in, c.tailnet(in.Tailnet)))
}

// Ingresses lists the keys of the ingresses on a tailnet in order.
func (c *Compilation) Ingresses(tailnet string) []desired.Key {
	return slices.SortedFunc(maps.Keys(c.onTailnet[tailnet]), desired.Key.Compare)
}

// Users lists the objects that refer to key, in order (T8).
func (c *Compilation) Users(key desired.Key) []desired.Key {
	var users []desired.Key
	for user, o := range c.objects {
		for _, ref := range o.Spec.References() {
			if found, ok := c.resolve(ref); ok && found == key {
				users = append(users, user)
				break
			}
		}
	}
	slices.SortFunc(users, desired.Key.Compare)
	return users
}
