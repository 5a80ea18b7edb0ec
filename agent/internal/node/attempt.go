package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tailscale.com/client/local"
	"tailscale.com/ipn"
	"tailscale.com/tsnet"
)

// closeLimit is how long a server may take to close. One that hangs is left behind and told of.
const closeLimit = 20 * time.Second

// attempt runs one server until ctx ends or it is of no more use.
func (n *Node) attempt(ctx context.Context, key string) (failure error) {
	memory, err := n.recall(ctx)
	if err != nil {
		return err
	}
	server := &tsnet.Server{
		Hostname: n.config.Hostname, ControlURL: n.config.ControlURL, Dir: n.config.Dir, AuthKey: key, Port: memory.port,
		Logf:     func(string, ...any) {}, // the backend's own log is for its developers
		UserLogf: func(format string, args ...any) { n.userLog(format, args...) },
	}
	server.Store = &stateStore{state: n.config.State, first: func() { memory.restore(server, n.config.Log) }}
	if err := server.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting the node: %w", err), n.close(server))
	}
	defer func() { failure = errors.Join(failure, n.close(server)) }()
	client, err := server.LocalClient()
	if err != nil {
		return fmt.Errorf("reaching the node: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	bus, err := client.WatchIPNBus(watching, ipn.NotifyInitialState|ipn.NotifyInitialHealthState)
	if err != nil {
		return fmt.Errorf("watching the node: %w", err)
	}
	defer bus.Close()
	w := &watch{node: n, server: server, client: client, enrolled: key == "", cached: memory.netmap}
	defer w.down()
	overdue := time.AfterFunc(startLimit, func() {
		if !w.isUp() {
			stop()
		}
	})
	defer overdue.Stop()
	for {
		notice, err := bus.Next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s in %s: %w", n.Observe().Message, startLimit, err)
		}
		if err := w.take(watching, &notice); err != nil {
			return err
		}
	}
}

// userLog passes on what tsnet would tell a person, but for links that log someone in.
func (n *Node) userLog(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if strings.Contains(text, "://") {
		return
	}
	n.config.Log.Debug("tsnet: " + text)
}

func (n *Node) close(server *tsnet.Server) error {
	done := make(chan error, 1)
	go func() { done <- server.Close() }()
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
	return up, nil
}
