package node

import (
	"context"
	"errors"
	"fmt"
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

// has reports whether the State holds a key.
func (n *Node) has(ctx context.Context, key string) (bool, error) {
	_, err := n.config.State.Read(ctx, key)
	if errors.Is(err, ErrNoState) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the node's state: %w", err)
	}
	return true, nil
}

// dropLogin forgets the login and keeps the machine's key, by which a control plane knows the device again: it keeps its
// address. A login that ended is not taken up again: tsnet would register twice, and the second time with a key that is used
// up by then.
func (n *Node) dropLogin(ctx context.Context) error {
	profile, err := n.config.State.Read(ctx, string(ipn.CurrentProfileStateKey))
	if errors.Is(err, ErrNoState) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the node's state: %w", err)
	}
	for _, key := range []string{string(profile), string(ipn.KnownProfilesStateKey), string(ipn.CurrentProfileStateKey)} {
		if err := n.config.State.Write(ctx, key, nil); err != nil {
			return fmt.Errorf("forgetting the node's login: %w", err)
		}
	}
	return nil
}

// stateStore gives a State to tsnet. It is safe for concurrent use.
type stateStore struct {
	state State
	// first is called at the first read: the server's parts are made then, and its backend has not started.
	first func()
	once  sync.Once

	mu sync.Mutex
	// mu guards following
	unsaved map[ipn.StateKey]error // keys whose last write failed, which tsnet does no more than log
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
	err := s.state.Write(ctx, string(id), value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.unsaved, id)
		return nil
	}
	if s.unsaved == nil {
		s.unsaved = map[ipn.StateKey]error{}
	}
	s.unsaved[id] = err
	return err
}

// lost gives why some of the identity is not durable; nil where all of it is.
func (s *stateStore) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.unsaved {
		return fmt.Errorf("keeping the node's identity: %w", err)
	}
	return nil
}
