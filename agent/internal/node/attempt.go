package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tailscale.com/client/local"
	"tailscale.com/ipn"
	"tailscale.com/tsnet"
)

const (
	// closeLimit is how long a server may take to close. One that hangs is left behind and told of.
	closeLimit = 20 * time.Second
	// partingLimit is how long keeping the last network map may take.
	partingLimit = 3 * time.Second
)

// start is what a server starts with.
type start struct {
	// key enrols; empty for a node that is enrolled.
	key    string
	memory memory
	// remembered says that the memory's map is served from until the control plane gives another.
	remembered bool
}

// attempt runs one server until ctx ends or it is of no more use. Its error is never nil.
func (n *Node) attempt(ctx context.Context, c *course, with start) (failure error) {
	if err := with.memory.place(ctx, n.config.Dir, with.remembered); err != nil {
		return &fault{phase: StateUnavailable, err: err}
	}
	s := &session{node: n, course: c, start: with, notices: make(chan ipn.Notify)}
	s.server = &tsnet.Server{
		Hostname: n.config.Hostname, ControlURL: n.config.ControlURL, Dir: n.config.Dir, AuthKey: with.key, Port: with.memory.Port,
		Logf: backendLog(n.config.Log, "tsnet"), UserLogf: backendLog(n.config.Log, "tsnet user"),
	}
	s.store = &stateStore{state: n.config.State, first: s.equip}
	s.server.Store = s.store
	err := s.server.Start()
	defer func() { failure = errors.Join(failure, closeServer(s.server, n.config.Log)) }()
	if err != nil {
		phase := Starting
		if s.store.lost() != nil {
			phase = StateUnavailable
		}
		return &fault{phase: phase, err: fmt.Errorf("starting the node: %w", err)}
	}
	if s.client, err = s.server.LocalClient(); err != nil {
		return &fault{phase: Starting, err: fmt.Errorf("reaching the node: %w", err)}
	}
	watching, stop := context.WithCancel(ctx)
	bus, err := s.client.WatchIPNBus(watching, ipn.NotifyInitialState|ipn.NotifyInitialHealthState)
	if err != nil {
		stop()
		return &fault{phase: Starting, err: fmt.Errorf("watching the node: %w", err)}
	}
	s.background.Go(func() { s.listen(watching, bus) })
	// A watcher that is left open has closing the server take five seconds.
	defer s.background.Wait()
	defer stop()
	defer s.down(ctx)
	return s.run(watching)
}

// equip gives the server's parts what they share with those of the last server.
func (s *session) equip() {
	if err := setDisco(s.server, s.start.memory.discoKey()); err != nil {
		s.node.config.Log.Warn("a later start will need the control plane", "hostname", s.node.config.Hostname, "err", err)
		return
	}
	s.discoSet = true
	if s.start.remembered {
		// Peers that are reached through a relay are told of the discovery key by the node itself.
		s.server.Sys().ControlKnobs().CacheNetworkMaps.Store(true)
	}
}

// listen passes on what the backend tells, until it ends.
func (s *session) listen(ctx context.Context, bus *local.IPNBusWatcher) {
	defer bus.Close()
	defer close(s.notices)
	for {
		notice, err := bus.Next()
		if err != nil {
			s.ended = err
			return
		}
		select {
		case s.notices <- notice:
		case <-ctx.Done():
			s.ended = ctx.Err()
			return
		}
	}
}

// closeServer closes a server, also one whose start failed: tsnet then closes only what it had made last.
func closeServer(server *tsnet.Server, log *slog.Logger) error {
	done := make(chan error, 1)
	go func() {
		if sys := server.Sys(); sys == nil {
			done <- nil // it failed before it made anything
			return
		}
		err := server.Close()
		if engine, ok := server.Sys().Engine.GetOK(); ok {
			engine.Close() // it is closed already unless the start failed
		}
		done <- err
	}()
	hangs := time.AfterFunc(unstickAfter, func() { unstick(server, log) })
	defer hangs.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("closing the node: %w", err)
		}
		return nil
	case <-time.After(closeLimit):
		return fmt.Errorf("closing the node: it is not closed after %s", closeLimit)
	}
}

// upFrom reads what the node was told of itself; nil where it has no address yet.
func upFrom(ctx context.Context, server *tsnet.Server, client *local.Client) (*Up, error) {
	status, err := client.StatusWithoutPeers(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the node's status: %w", err)
	}
	if status.Self == nil || len(status.TailscaleIPs) == 0 {
		return nil, nil
	}
	up := &Up{
		Server: server, DNSName: status.Self.DNSName, Addresses: status.TailscaleIPs,
		StableID: string(status.Self.ID), NodeKey: status.Self.PublicKey.String(),
	}
	if status.Self.Tags != nil {
		up.Tags = status.Self.Tags.AsSlice()
	}
	if status.Self.KeyExpiry != nil {
		up.KeyExpiry = *status.Self.KeyExpiry
	}
	return up, nil
}
