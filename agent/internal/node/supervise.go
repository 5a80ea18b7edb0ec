package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// fault is why a node is not up, and what it is at until the next attempt.
type fault struct {
	phase Phase
	// login says that the control plane does not accept the identity as it is.
	login bool
	err   error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// errForget ends an attempt whose identity is to be forgotten.
var errForget = errors.New("the node enrols again")

// course is what the supervisor carries from one attempt to the next.
type course struct {
	failures int
	// login says that the next attempt needs a key though there is an identity.
	login bool
	// alone says that the control plane answered and the node did not come up all the same.
	alone bool
}

// cameUp starts the back-off anew.
func (c *course) cameUp() { *c = course{} }

// Run runs servers one after the other until ctx ends. It always returns nil.
func (n *Node) Run(ctx context.Context) error {
	var c course
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-n.again:
		case <-time.After(n.next(ctx, &c)):
		}
	}
	n.observe(Starting, "the node is stopped")
	return nil
}

// next makes an attempt and gives the pause before another one.
func (n *Node) next(ctx context.Context, c *course) time.Duration {
	hadLogin := c.login
	err := n.round(ctx, c)
	if ctx.Err() != nil {
		return 0
	}
	c.failures++
	pause := n.pause(c.failures)
	var f *fault
	if errors.As(err, &f) {
		n.observe(f.phase, f.Error())
		c.login = c.login || f.login
	}
	if n.forgets() || c.login && !hadLogin {
		pause = 0
	}
	n.config.Log.Warn("node is down", "hostname", n.config.Hostname, "next_in", pause.Round(time.Millisecond), "err", redact(err.Error()))
	return pause
}

// pause doubles with each failure, and differs from node to node so that they do not all come back at once.
func (n *Node) pause(failures int) time.Duration {
	const doublings = 10
	pause := min(n.limits.firstPause<<min(failures-1, doublings), n.limits.longestPause)
	return pause*3/4 + rand.N(pause/2)
}

// round is one attempt, after forgetting the identity where that was asked for.
func (n *Node) round(ctx context.Context, c *course) error {
	if n.forgets() {
		if err := errors.Join(n.config.State.Clear(ctx), os.RemoveAll(n.config.Dir)); err != nil {
			return &fault{phase: StateUnavailable, err: fmt.Errorf("forgetting the identity: %w", err)}
		}
		n.mu.Lock()
		n.forget = false
		n.mu.Unlock()
		*c = course{}
	}
	if err := os.MkdirAll(n.config.Dir, 0o700); err != nil {
		return &fault{phase: StateUnavailable, err: fmt.Errorf("making the node's folder: %w", err)}
	}
	enrolled, err := n.has(ctx, stateEnrolled)
	if err != nil {
		return &fault{phase: StateUnavailable, err: err}
	}
	absent := probe(ctx, n.config.ControlURL)
	if enrolled && !c.login {
		return n.rejoin(ctx, c, absent)
	}
	return n.enrol(ctx, c, absent)
}

// enrol makes an identity, or has the control plane accept the one that it no longer does.
func (n *Node) enrol(ctx context.Context, c *course, absent error) error {
	if absent != nil {
		return &fault{phase: ControlUnreachable, err: fmt.Errorf("the node waits for the control plane to enrol: %w", absent)}
	}
	past, err := n.recall(ctx)
	if err != nil {
		return err
	}
	fresh, err := past.renewed()
	if err != nil {
		return err
	}
	n.observe(Starting, "the node is being enrolled")
	key, err := n.config.MintKey(ctx)
	if err != nil {
		return &fault{phase: KeyUnavailable, err: fmt.Errorf("a key to enrol with is needed: %w", err)}
	}
	if err := n.dropLogin(ctx); err != nil {
		return &fault{phase: StateUnavailable, err: err}
	}
	return n.attempt(ctx, c, start{key: key, memory: fresh})
}

// rejoin brings an enrolled node back, from what it remembers where the control plane is away (A3). A control plane that is
// there is waited for instead: what it withdrew since must not be served, not even at first (X17).
func (n *Node) rejoin(ctx context.Context, c *course, absent error) error {
	past, err := n.recall(ctx)
	if err != nil {
		return err
	}
	if past.usable(n.config.ControlURL) && (absent != nil || c.alone) {
		n.config.Log.Info("node starts without its control plane", "hostname", n.config.Hostname, "saved", past.Saved, "err", absent)
		return n.attempt(ctx, c, start{memory: past, remembered: true})
	}
	fresh, err := past.renewed()
	if err != nil {
		return err
	}
	n.observe(Starting, "the node is joining the tailnet")
	if absent != nil {
		n.observe(ControlUnreachable, "the node waits for the control plane: "+absent.Error())
	}
	return n.attempt(ctx, c, start{memory: fresh})
}
