package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

const (
	firstPause   = time.Second
	longestPause = time.Minute
	// startLimit is how long a server may take to be on the tailnet.
	startLimit = time.Minute
)

// errKeyNeeded says that the control plane does not accept the identity as it is.
var errKeyNeeded = errors.New("the control plane asks the node to log in again")

// Run runs servers one after the other until ctx ends. It always returns nil.
func (n *Node) Run(ctx context.Context) error {
	failures, withKey := 0, false
	for ctx.Err() == nil {
		started := time.Now()
		err := n.round(ctx, withKey)
		withKey = errors.Is(err, errKeyNeeded)
		if ctx.Err() != nil {
			break
		}
		if time.Since(started) > startLimit {
			failures = 0
		}
		failures++
		pause := min(firstPause<<min(failures-1, 10), longestPause)
		pause += rand.N(pause / 4)
		if n.takesForget() || withKey && failures == 1 {
			pause = 0
		}
		n.config.Log.Warn("node is down", "next_in", pause.Round(time.Millisecond), "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (n *Node) takesForget() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forget
}

// round is one attempt, after forgetting the identity where that was asked for.
func (n *Node) round(ctx context.Context, withKey bool) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	n.mu.Lock()
	forget := n.forget
	n.forget = false
	n.end = end
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.end = nil
		n.mu.Unlock()
	}()
	if forget {
		if err := errors.Join(n.config.State.Clear(ctx), os.RemoveAll(n.config.Dir)); err != nil {
			return fmt.Errorf("forgetting the identity: %w", err)
		}
	}
	key, err := n.enrolmentKey(ctx, withKey)
	if err != nil {
		n.observe(KeyRefused, err.Error())
		return err
	}
	if err := os.MkdirAll(n.config.Dir, 0o700); err != nil {
		return fmt.Errorf("making the node's folder: %w", err)
	}
	return n.attempt(ctx, key)
}

// enrolmentKey mints a key where one is needed, and gives none otherwise.
func (n *Node) enrolmentKey(ctx context.Context, needed bool) (string, error) {
	_, err := n.config.State.Read(ctx, stateEnrolled)
	if err == nil && !needed {
		return "", nil
	}
	if err != nil && !errors.Is(err, ErrNoState) {
		return "", fmt.Errorf("reading the node's state: %w", err)
	}
	n.observe(Starting, "the node is being enrolled")
	key, err := n.config.MintKey(ctx)
	if err != nil {
		return "", fmt.Errorf("a key to enrol with is needed: %w", err)
	}
	return key, nil
}
