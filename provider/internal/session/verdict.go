package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// judge turns a problem of an ingress that changes into an error where it is sure, and into a warning where what is still
// to be planned may lift it.
func (s *Session) judge(key desired.Key, spec *desired.Ingress, p blueprint.Problem, in Intent, out *Outcome) {
	switch {
	case in.Unknown(p.Path) || !sure(p):
		// The verdict is on what is not known, or was made from it.
	case p.Owner != nil:
		s.conflict(key, p, out)
	case p.Reason == desired.ReasonReferenceMissing && p.Value != "":
		kind := desired.KindIssuer
		if len(p.Path) == 1 {
			kind = desired.KindTailnet
		}
		out.warn(p.Path, "Not declared yet", s.notYet(p, kind))
	case s.mayBeDefined(spec, p):
		out.warn(p.Path, "Not defined yet", p.Detail()+". If this configuration brings the tag with an ingress, refer to "+
			"postern_ingress.<name>.tag, so that it comes first; the apply refuses a tag that nothing defines.")
	case p.Refuse:
		out.fail(p.Path, "Refused: "+string(p.Reason), p.Detail())
	default:
		out.warn(p.Path, string(p.Reason), p.Detail())
	}
}

// sure reports whether a problem was made from known text alone.
func sure(p blueprint.Problem) bool { return desired.Known(p.Value + p.Rule + p.Remedy) }

// mayBeDefined reports whether p is about a tag that the policy does not define and that an ingress which is planned later
// may bring.
func (s *Session) mayBeDefined(spec *desired.Ingress, p blueprint.Problem) bool {
	if p.Reason != desired.ReasonPolicyRefused || !strings.HasPrefix(p.Value, "tag:") {
		return false
	}
	o, ok := s.now.Object(desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: spec.Tailnet})
	if !ok {
		return false
	}
	t, ok := o.Spec.(*desired.Tailnet)
	return ok && t.Allows(p.Value)
}

// conflict judges a name that another object holds (N6): it is refused where the holder is planned to keep it or is not this
// workspace's to move, and a warning where this plan may yet free it.
func (s *Session) conflict(key desired.Key, p blueprint.Problem, out *Outcome) {
	holder, _ := s.now.Object(*p.Owner)
	switch {
	case s.planned[*p.Owner] != nil:
		out.fail(p.Path, string(p.Reason), p.Detail()+". Both are in this plan.")
	case holder.Workspace != s.Workspace():
		out.fail(p.Path, string(p.Reason), fmt.Sprintf("%s. It is declared by workspace %q.", p.Detail(), holder.Workspace))
	default:
		s.contested[*p.Owner] = append(s.contested[*p.Owner], key)
		out.warn(p.Path, string(p.Reason), p.Detail()+". If this plan deletes or renames that one, the apply waits for the name to be free; "+
			"otherwise this ingress does not become ready.")
	}
}

// contest refuses a plan in which key keeps a name that another changed object of the plan claims. That one was planned
// first, when it was not sure yet.
func (s *Session) contest(key desired.Key, out *Outcome) {
	for _, claimant := range s.contested[key] {
		in := s.now.Ingress(claimant)
		if in == nil {
			continue
		}
		for _, p := range in.Problems {
			if p.Owner != nil && *p.Owner == key {
				out.fail(desired.At("name"), string(p.Reason), fmt.Sprintf(
					"%q: %s holds this name and keeps it in this plan, and %s of the same plan claims it too; %s", p.Name, key, claimant, p.Remedy))
			}
		}
	}
	s.contested[key] = slices.DeleteFunc(s.contested[key], func(desired.Key) bool { return true })
}

// notYet says that what is referred to is not there, and how it would come first (T8). It is no error at plan: what the plan
// comes to later may declare it, and otherwise the apply refuses it.
func (s *Session) notYet(p blueprint.Problem, kind desired.Kind) string {
	const consequence = " The names that depend on it are known after apply only."
	detail := p.Detail() + "."
	if s.away != nil {
		detail = fmt.Sprintf("%q: the agent does not answer, and this plan has not declared a %s of this name so far.", p.Value, kind)
	}
	detail += fmt.Sprintf(" If this configuration declares it, refer to postern_%s.<name>.name in place of the text, so that it is planned first.", kind)
	if kind == desired.KindTailnet {
		detail += consequence
	}
	return detail + " The apply refuses a name that is not there."
}
