package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Intent is what a resource is planned to be.
type Intent struct {
	// Object is the declaration; what is unknown in it is desired.Unknown or absent.
	Object desired.Object
	// Prior is the key that the resource has now; nil where it is to be created.
	Prior *desired.Key
	// Changes is set where the resource is new or its own declaration changes.
	Changes bool
	// Unknown reports whether a verdict on a path says nothing yet, since the value there is not known.
	Unknown func(desired.Path) bool
}

// Outcome is what an intent comes to.
type Outcome struct {
	// Ingress is what an ingress comes to; nil for other kinds, and where its tailnet is known neither to the agent nor to
	// this session.
	Ingress *blueprint.Ingress
	// Ending is set where the agent is ending the object already, so that it can only be created anew.
	Ending bool
	// Errors and Warnings are the verdicts.
	Errors, Warnings []Notice
}

// Notice is a verdict for a user to read.
type Notice struct {
	// Path is empty where the notice is about the object as a whole.
	Path            desired.Path
	Summary, Detail string
}

func (o *Outcome) fail(at desired.Path, summary, detail string) {
	o.Errors = append(o.Errors, Notice{at, summary, detail})
}

func (o *Outcome) warn(at desired.Path, summary, detail string) {
	o.Warnings = append(o.Warnings, Notice{at, summary, detail})
}

// Put records what a resource is planned to be and says what that comes to among all that is declared and planned.
func (s *Session) Put(ctx context.Context, in Intent) (*Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	out := &Outcome{}
	key := in.Object.Key()
	if in.Prior != nil && *in.Prior != key {
		s.end(*in.Prior)
	}
	if !desired.Known(key.Path()) {
		if ingress, ok := in.Object.(*desired.Ingress); ok && s.hasTailnet(ingress.Tailnet) {
			out.Ingress = s.now.Preview(ingress)
		}
		return out, nil
	}
	s.record(key, in, out)
	switch spec := in.Object.(type) {
	case *desired.Ingress:
		s.putIngress(key, spec, in, out)
	case *desired.Tailnet:
		s.putTailnet(spec, in, out)
	default:
		s.now.Put(s.object(key, spec))
	}
	s.contest(key, out)
	return out, nil
}

// record remembers a plan and refuses a second declaration of the same object.
func (s *Session) record(key desired.Key, in Intent, out *Outcome) {
	text, err := json.Marshal(in.Object)
	if err != nil {
		text = nil // it cannot be told from another
	}
	p := &plan{spec: string(text), created: in.Prior == nil}
	there, exists := s.base.Object(key)
	out.Ending = exists && there.Deleting
	old := s.planned[key]
	if old != nil {
		p.replaced = old.replaced || !old.created
	}
	if exists && p.created && !p.replaced && !there.Deleting && !s.ended[key] {
		s.exists(key, there, out)
	}
	s.planned[key] = p
	if old == nil {
		return
	}
	if old.created && p.created && old.spec != p.spec {
		out.fail(desired.At("name"), "Declared twice", fmt.Sprintf(
			"%q: two resources of this configuration declare %s, and they differ; give one of the two another name", key.Name, key))
	}
}

// exists says that what is to be created is there (T8). It is no error where this workspace declared it: Terraform plans
// a creation for a tainted resource too, without saying so.
func (s *Session) exists(key desired.Key, there blueprint.Object, out *Outcome) {
	if there.Workspace != s.Workspace() {
		out.fail(desired.At("name"), fmt.Sprintf("%s exists already", key), fmt.Sprintf(
			"It is declared by workspace %q. %s", there.Workspace, Adoption(key)))
		return
	}
	out.warn(desired.At("name"), fmt.Sprintf("%s exists already", key), "This workspace declared it. Where Terraform calls the resource "+
		"tainted, its creation was not finished, and the apply goes on with what is there: the device and its addresses stay, although "+
		"the plan speaks of a replacement. Otherwise the apply refuses to create it. "+Adoption(key))
}

// Adoption says how to take over an object that exists (T8).
func Adoption(key desired.Key) string {
	return fmt.Sprintf("To manage it here, import it: `terraform import postern_%s.%s %s`, or the block\n\n"+
		"  import {\n    to = postern_%s.%s\n    id = %q\n  }", key.Kind, key.Name, key.ID(), key.Kind, key.Name, key.ID())
}

// object gives a spec the age and owner that the agent's object of the same key has.
func (s *Session) object(key desired.Key, spec desired.Object) blueprint.Object {
	o := blueprint.Object{Spec: spec, Created: youngest, Workspace: s.Workspace()}
	if old, ok := s.base.Object(key); ok && !old.Deleting {
		o.Created, o.Revision = old.Created, old.Revision
	}
	return o
}

func (s *Session) hasTailnet(name string) bool {
	_, ok := s.now.Object(desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: name})
	return ok
}

func (s *Session) putIngress(key desired.Key, spec *desired.Ingress, in Intent, out *Outcome) {
	s.now.Put(s.object(key, spec))
	ingress := s.now.Ingress(key)
	if s.hasTailnet(spec.Tailnet) {
		out.Ingress = ingress
		s.planned[key].names = ingress
	}
	before := s.base.Ingress(key)
	for _, p := range ingress.Problems {
		if in.Changes || before != nil && !has(before.Problems, p) {
			s.judge(key, spec, p, in, out)
		}
	}
}

// has reports whether the agent knows of a problem already: then it is in the object's conditions, and no news of this plan.
func has(problems []blueprint.Problem, p blueprint.Problem) bool {
	return slices.ContainsFunc(problems, func(o blueprint.Problem) bool {
		return o.Reason == p.Reason && o.FieldError.Error() == p.FieldError.Error()
	})
}

func sameNames(a, b *blueprint.Ingress) bool {
	return a.DNSName == b.DNSName && a.Tag == b.Tag && a.Hostname == b.Hostname && slices.Equal(a.Hosts, b.Hosts)
}

// putTailnet refuses a change of templates that ingresses planned before it were not shown with: what they were shown as
// would not come true. It happens only where they name their tailnet by a literal, so that nothing orders them.
func (s *Session) putTailnet(spec *desired.Tailnet, in Intent, out *Outcome) {
	key := spec.Key()
	s.now.Put(s.object(key, spec))
	for _, p := range s.now.Missing(spec) {
		if !in.Unknown(p.Path) && in.Changes {
			out.warn(p.Path, "Not declared yet", s.notYet(p, desired.KindIssuer))
		}
	}
	var moved, others []string
	for _, ingress := range s.now.Ingresses(spec.Name) {
		p, before, after := s.planned[ingress], s.base.Ingress(ingress), s.now.Ingress(ingress)
		if p != nil && p.names != nil && !sameNames(p.names, after) {
			moved = append(moved, ingress.ID())
		}
		if o, _ := s.now.Object(ingress); p == nil && o.Workspace != s.Workspace() && before != nil {
			others = append(others, differences(o.Workspace, before, after)...)
		}
	}
	if len(others) > 0 && in.Changes {
		out.warn(nil, "Ingresses of other workspaces change", strings.Join(others, "\n"))
	}
	if len(moved) > 0 {
		out.fail(desired.At("dns"), "Ingresses were planned before their tailnet", fmt.Sprintf(
			"the names of %s change with the tailnet's templates, and their plan did not know. Have each refer to this resource "+
				"(tailnet = postern_tailnet.<name>.name) in place of %q, so that it is planned after it.", strings.Join(moved, ", "), spec.Name))
	}
}

// differences says what becomes of another workspace's ingress.
func differences(workspace string, before, after *blueprint.Ingress) []string {
	var out []string
	who := fmt.Sprintf("%s of workspace %q: ", after.Key, workspace)
	if was, is := strings.Join(before.Hosts, ", "), strings.Join(after.Hosts, ", "); was != is && desired.Known(is) {
		out = append(out, who+"its hosts change from "+was+" to "+is+".")
	}
	for _, p := range after.Problems {
		if !has(before.Problems, p) && sure(p) {
			out = append(out, who+p.FieldError.Error()+".")
		}
	}
	return out
}

// Delete records that a resource is planned to end.
func (s *Session) Delete(ctx context.Context, key desired.Key) (*Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	out := &Outcome{}
	var users []string
	for _, user := range s.now.Users(key) {
		o, _ := s.now.Object(user)
		if !o.Deleting && (s.planned[user] != nil || o.Workspace != s.Workspace()) {
			users = append(users, fmt.Sprintf("%s (workspace %q)", user, o.Workspace))
		}
	}
	if len(users) > 0 {
		out.fail(nil, fmt.Sprintf("%s is in use", key), fmt.Sprintf(
			"It cannot be deleted while others refer to it: %s. Delete these first, or have them refer to another.", strings.Join(users, ", ")))
	}
	s.end(key)
	return out, nil
}

func (s *Session) end(key desired.Key) {
	if p := s.planned[key]; p != nil && p.created {
		return // another resource of this plan takes the key over
	}
	s.now.Delete(key)
	s.ended[key] = true
	delete(s.planned, key)
}
