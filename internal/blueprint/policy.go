package blueprint

import (
	"slices"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Policy lists what the tailnet's policy must hold for its ingresses: the agent's tag, each ingress's tag owned by it, the
// declared tags' being left to their owners, and the grants of allow_from (P3, P4). It is empty for a tailnet that is ending.
func (c *Compilation) Policy(tailnet string) []PolicyEntry {
	key := desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: tailnet}
	o, ok := c.objects[key]
	t := c.tailnet(tailnet)
	if !ok || t == nil || o.Deleting {
		return nil
	}
	entries := []PolicyEntry{{Owner: key, Tag: t.AgentTag(), Owners: []string{}}}
	seen := []string{t.AgentTag()}
	for _, ingress := range c.Ingresses(tailnet) {
		in := c.Ingress(ingress)
		if in.Withdrawn || c.objects[ingress].Released {
			continue
		}
		if !slices.Contains(seen, in.Tag) {
			seen = append(seen, in.Tag)
			entries = append(entries, PolicyEntry{Owner: ingress, Tag: in.Tag, Owners: []string{t.AgentTag()}})
		}
		if in.Grant != nil {
			entries = append(entries, PolicyEntry{Owner: ingress, Grant: in.Grant})
		}
	}
	return entries
}
