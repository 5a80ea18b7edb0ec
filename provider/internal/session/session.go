// Package session holds what one provider process has planned so far, laid over what the agent has declared: so names are
// known in the very plan that creates a tailnet, and two claims inside one plan are refused.
//
// Terraform plans all resources of one provider configuration in one process, in the order of their references, and plans
// each again at apply, in another process, after what it refers to was applied. Both phases compile the same objects and
// so come to the same names. Order is sure along references alone: what is not seen yet may still be planned, and is a
// warning at most; at apply the agent judges.
package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// patience is how long the agent's snapshot is waited for before the plan goes on without it.
const patience = 20 * time.Second

// Session is the plan session of one configured provider. It is safe for concurrent use.
type Session struct {
	client *api.Client // or nil
	// absent says why there is no client; nil where there is one.
	absent error

	mu sync.Mutex
	// mu guards following
	loaded bool
	// away is why the agent could not be asked; nil where it answered.
	away error
	// told is set once the user was told that the agent is away.
	told bool
	// base is what the agent has declared. It is never changed.
	base *blueprint.Compilation
	// now is base with what was planned over it.
	now     *blueprint.Compilation
	planned map[desired.Key]*plan
	// ended holds the keys whose resources this plan ends.
	ended map[desired.Key]bool
	// contested lists, by the holder of a name, those that changed in this plan and claim it too.
	contested map[desired.Key][]desired.Key
	// spared holds the keys of tainted resources that Terraform replaces and that are left as they are (Spare).
	spared map[desired.Key]bool
}

// plan is an object as this session planned it.
type plan struct {
	// spec is the object as JSON, to tell two declarations of one key from one that is planned twice.
	spec string
	// created is set where the plan creates the object.
	created bool
	// replaced is set where the plan ends an object of the same key first.
	replaced bool
	// names is what was shown for an ingress; nil where nothing was.
	names *blueprint.Ingress
}

// New makes a session on an agent. It asks nothing yet. Without a client, absent says why there is none.
func New(client *api.Client, absent error) *Session {
	return &Session{
		client: client, absent: absent,
		planned: map[desired.Key]*plan{}, ended: map[desired.Key]bool{}, contested: map[desired.Key][]desired.Key{}, spared: map[desired.Key]bool{},
	}
}

// Client is the client of the agent, or an error that says why there is none.
func (s *Session) Client() (*api.Client, error) {
	if s.client == nil {
		return nil, s.absent
	}
	return s.client, nil
}

// Workspace is the workspace that the session plans for.
func (s *Session) Workspace() string {
	if s.client == nil {
		return ""
	}
	return s.client.Workspace()
}

// load fetches the agent's snapshot once. An agent that is away leaves the session to what it plans itself; an agent that
// refuses is an error. A caller that gives up does not spoil it for the next. mu is held.
func (s *Session) load(ctx context.Context) error {
	if s.loaded {
		return nil
	}
	snapshot, err := s.fetch(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, api.ErrUnavailable):
		s.away, snapshot = err, blueprint.Snapshot{}
	case err != nil:
		return err
	}
	s.base, s.now, s.loaded = blueprint.Compile(snapshot), blueprint.Compile(snapshot), true
	return nil
}

func (s *Session) fetch(ctx context.Context) (blueprint.Snapshot, error) {
	if s.client == nil {
		return blueprint.Snapshot{}, fmt.Errorf("%w: %w", api.ErrUnavailable, s.absent)
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	snapshot, err := s.client.Snapshot(limited)
	if errors.Is(err, context.DeadlineExceeded) {
		return blueprint.Snapshot{}, &api.Error{Kind: api.ErrUnavailable, Message: fmt.Sprintf(
			"the agent at %s did not answer within %s", s.client.Endpoint(), patience)}
	}
	if err != nil {
		return blueprint.Snapshot{}, err
	}
	return snapshot.Blueprint()
}

// Away tells, once in a session, that the agent could not be asked, and what was not checked for it.
func (s *Session) Away() (Notice, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == nil || s.told {
		return Notice{}, false
	}
	s.told = true
	return awayNotice(s.away), true
}

// Lose records that the agent did not answer a request, so that the session does not ask again.
func (s *Session) Lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		s.base, s.now, s.loaded = blueprint.Compile(blueprint.Snapshot{}), blueprint.Compile(blueprint.Snapshot{}), true
	}
	if s.away == nil {
		s.away = err
	}
}

func awayNotice(err error) Notice {
	return Notice{
		Summary: "The plan was made without the agent",
		Detail: err.Error() + ".\n\nNames are known from what this plan itself declares. Not checked: conflicts with names of other workspaces; " +
			"what the control plane can do and whether it takes the API key; allow-lists, groups and tags of tailnets that this plan " +
			"does not declare; tailnets and issuers that this plan does not declare; changes since the last apply. The apply checks " +
			"all of it, and needs the agent.",
	}
}

// Ask tries a declaration at the agent, which then looks at the control plane. What it observed of tailnets is compiled
// with from then on. An agent that is away answers with nil.
func (s *Session) Ask(ctx context.Context, change api.Change) (*api.PlanResponse, error) {
	s.mu.Lock()
	err := s.load(ctx)
	away := s.away
	s.mu.Unlock()
	if err != nil || away != nil {
		return nil, err
	}
	answer, err := s.client.Plan(ctx, change)
	if err != nil {
		return nil, fmt.Errorf("trying %s at the agent: %w", change.Key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tailnet, facts := range answer.Facts {
		s.now.SetFacts(tailnet, facts)
	}
	return answer, nil
}

// Spare records that an object was left as it is where Terraform meant to end and create it anew.
func (s *Session) Spare(key desired.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spared[key] = true
}

// Spared reports whether this process left an object as it is, for its creation to go on with.
func (s *Session) Spared(key desired.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spared[key]
}

// youngest is the age of what is planned and not declared yet.
const youngest = math.MaxInt64
