package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"tailscale.com/client/local"
	"tailscale.com/health"
	"tailscale.com/ipn"
	"tailscale.com/tsnet"
)

// saveDelay is how long what the node was told of itself settles before it is kept.
const saveDelay = time.Second

// session follows one server. Everything but listen and announce runs on the supervisor's goroutine.
type session struct {
	node    *Node
	course  *course
	start   start
	server  *tsnet.Server
	store   *stateStore
	client  *local.Client
	notices chan ipn.Notify
	ended   error // why notices is closed; read it after that

	// discoSet says that the server has the memory's discovery key.
	discoSet bool
	// state is the backend's last, and trouble what it last complained of.
	state   ipn.State
	trouble string
	// up is what the node was last told of itself; nil until it is up.
	up         *Up
	remembered [sha256.Size]byte
	background sync.WaitGroup

	// The times at which something is due; nil channels are never.
	overdue, settled, unsaved <-chan time.Time
}

// run follows the server until it is of no more use.
func (s *session) run(ctx context.Context) error {
	looking, saving := time.NewTicker(s.node.limits.look), time.NewTicker(s.node.limits.save)
	defer looking.Stop()
	defer saving.Stop()
	s.overdue = time.After(s.node.limits.start)
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case notice, ok := <-s.notices:
			if !ok {
				return &fault{phase: Starting, err: fmt.Errorf("the node's backend ended: %w", s.ended)}
			}
			err = s.take(ctx, &notice)
		case <-s.node.again:
			if s.node.forgets() {
				return errForget
			}
		case <-s.overdue:
			err = s.late(ctx)
		case <-s.settled:
			s.settled = nil
			err = s.refresh(ctx)
		case <-looking.C:
			s.look()
		case <-saving.C:
			s.save(ctx)
		case <-s.unsaved:
			s.unsaved = nil
			s.save(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// take acts on one notice of the backend. An error ends the attempt.
func (s *session) take(ctx context.Context, notice *ipn.Notify) error {
	if notice.ErrMessage != nil {
		if err := s.refused(*notice.ErrMessage); err != nil {
			return err
		}
	}
	if notice.BrowseToURL != nil && *notice.BrowseToURL != "" {
		return s.loggedOut()
	}
	if notice.Health != nil {
		s.hear(notice.Health)
	}
	if notice.State != nil {
		if err := s.enter(ctx, *notice.State); err != nil {
			return err
		}
	}
	if notice.SelfChange == nil {
		return nil
	}
	s.unsaved = time.After(saveDelay)
	if s.up == nil {
		return nil
	}
	return s.refresh(ctx)
}

// refused takes an error that the control plane sent. Traffic of a node that is up goes on.
func (s *session) refused(message string) error {
	s.trouble = message
	switch {
	case s.up != nil:
		s.node.config.Log.Warn("the control plane complains", "hostname", s.node.config.Hostname, "err", redact(message))
		return nil
	case s.start.key != "" && s.course.login:
		// Headscale keeps the expiry of a tagged device when it registers again, and so refuses it for ever.
		return &fault{phase: KeyRefused, err: fmt.Errorf("the control plane refuses to log the node in again: %s; "+
			"delete the device there, or end its expiry, and the agent enrols it", message)}
	case s.start.key != "":
		return &fault{phase: KeyRefused, err: fmt.Errorf("the control plane refuses the node's key: %s; the agent mints another", message)}
	default:
		return &fault{phase: NeedsLogin, login: true, err: fmt.Errorf("the control plane refuses the node: %s; the agent enrols it again", message)}
	}
}

func (s *session) loggedOut() error {
	if s.start.key != "" && s.up == nil {
		return &fault{phase: KeyRefused, err: errors.New("the control plane asks for a person to log the node in, though it has a key; the agent mints another")}
	}
	return &fault{phase: NeedsLogin, login: true, err: errors.New("the control plane no longer knows the node, or its login expired; the agent enrols it again")}
}

// hear keeps why the node does not come up, where the backend knows.
func (s *session) hear(state *health.State) {
	for code, warning := range state.Warnings {
		if strings.Contains(string(code), "login-state") {
			s.trouble = warning.Text
		}
	}
}

// enter acts on the backend's state.
func (s *session) enter(ctx context.Context, state ipn.State) error {
	s.state = state
	switch state {
	case ipn.Running:
		return s.refresh(ctx)
	case ipn.Starting:
		if s.up == nil && s.settled == nil {
			s.settled = time.After(s.node.limits.settle)
		}
	case ipn.NeedsMachineAuth:
		s.overdue = nil
		s.node.observe(NeedsApproval, "the node waits for approval; an admin of the tailnet has to approve the device "+s.node.config.Hostname)
	case ipn.NeedsLogin:
		if s.up != nil {
			return s.loggedOut()
		}
	case ipn.Stopped:
		return &fault{phase: Starting, err: errors.New("the node's backend stopped by itself")}
	}
	return nil
}

// late ends an attempt that takes too long.
func (s *session) late(ctx context.Context) error {
	s.overdue = nil
	if s.up != nil {
		return nil
	}
	s.course.alone = true
	reason := s.trouble
	if reason == "" {
		reason = "its backend is at " + s.state.String()
	}
	phase := Starting
	if err := probe(ctx, s.node.config.ControlURL); err != nil {
		phase, reason = ControlUnreachable, err.Error()
	}
	return &fault{phase: phase, err: fmt.Errorf("the node is not on the tailnet after %s: %s", s.node.limits.start, reason)}
}

// refresh takes note of what the node was told of itself, and the first time says that it is up.
func (s *session) refresh(ctx context.Context) error {
	up, err := upFrom(ctx, s.server, s.client)
	if err != nil || up == nil {
		return err
	}
	up.Remembered = s.start.remembered
	if s.up != nil {
		if !reflect.DeepEqual(s.up, up) {
			s.up = up
			s.node.observeUp(up)
		}
		return nil
	}
	if err := s.keep(ctx, up); err != nil {
		return &fault{phase: StateUnavailable, err: err}
	}
	s.up, s.overdue, s.settled = up, nil, nil
	s.course.cameUp()
	s.unsaved = time.After(saveDelay)
	s.node.config.Log.Info("node is up", "hostname", s.node.config.Hostname, "dns_name", up.DNSName, "addresses", up.Addresses, "remembered", up.Remembered)
	s.node.config.Up(up)
	s.node.observeUp(up)
	if s.start.remembered {
		s.background.Go(func() { announce(ctx, s.client) })
	}
	return nil
}

// keep makes sure that the identity is durable before anything is served under it: one that is lost with the process would
// come back with another address.
func (s *session) keep(ctx context.Context, up *Up) error {
	if err := s.store.lost(); err != nil {
		return err
	}
	enrolled, err := s.node.has(ctx, stateEnrolled)
	if err != nil || enrolled {
		return err
	}
	if err := s.node.config.State.Write(ctx, stateEnrolled, []byte(up.StableID)); err != nil {
		return fmt.Errorf("recording the enrolment: %w", err)
	}
	return nil
}

// look records whether the control plane is there.
func (s *session) look() {
	if s.up != nil {
		s.node.observeContact(s.server.Sys().HealthTracker.Get().GetInPollNetMap())
	}
}

func (s *session) save(ctx context.Context) {
	if s.up == nil {
		return
	}
	if err := s.remember(ctx); err != nil && ctx.Err() == nil {
		s.node.config.Log.Warn("a start without the control plane would not know what changed", "hostname", s.node.config.Hostname, "err", err)
	}
}

// down has everything stop using the server.
func (s *session) down(ctx context.Context) {
	if s.up == nil {
		return
	}
	s.node.config.Down()
	if !s.node.forgets() {
		parting, cancel := context.WithTimeout(context.WithoutCancel(ctx), partingLimit)
		s.save(parting)
		cancel()
	}
	s.up = nil
	s.node.observe(Starting, "the node is being started again")
}
