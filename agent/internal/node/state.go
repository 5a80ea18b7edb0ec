package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"tailscale.com/ipn"
)

// What this package keeps in a State, beside the keys that tsnet keeps there.
const (
	// stateEnrolled is there once the node was on the tailnet.
	stateEnrolled = "postern-enrolled"
	// stateMemory holds what a start without the control plane needs.
	stateMemory = "postern-memory"
)

// stateLimit bounds a call of the State: tsnet makes them while it holds its own lock.
const stateLimit = 10 * time.Second

// stateStore gives a State to tsnet.
type stateStore struct {
	state State
	// first is called at the first read: the backend is made then, and has not started.
	first func()
	once  sync.Once
}

var _ ipn.StateStore = (*stateStore)(nil)

// ReadState implements ipn.StateStore.
func (s *stateStore) ReadState(id ipn.StateKey) ([]byte, error) {
	s.once.Do(s.first)
	ctx, cancel := context.WithTimeout(context.Background(), stateLimit)
	defer cancel()
	value, err := s.state.Read(ctx, string(id))
	if errors.Is(err, ErrNoState) {
		return nil, ipn.ErrStateNotExist
	}
	return value, err
}

// WriteState implements ipn.StateStore.
func (s *stateStore) WriteState(id ipn.StateKey, value []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), stateLimit)
	defer cancel()
	return s.state.Write(ctx, string(id), value)
}
