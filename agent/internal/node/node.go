// Package node runs a tailnet identity under a supervisor. A tsnet server whose start failed, or that lost its login, is of
// no more use: the supervisor closes it and makes another, with a back-off, until it is told to stop. The identity's keys
// lie in a State that outlives every server, so that the address stays.
package node

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"tailscale.com/tsnet"
)

// ErrNoState is what a State answers with for a key that it does not hold.
var ErrNoState = errors.New("there is no such state")

// State keeps a node's keys, durably and in secret. It is called while tsnet holds its own lock: it should answer within
// a second or two.
type State interface {
	// Read gives a value, or ErrNoState.
	Read(ctx context.Context, key string) ([]byte, error)
	// Write keeps a value and returns when it is durable. A nil value forgets the key.
	Write(ctx context.Context, key string, value []byte) error
	// Clear forgets everything.
	Clear(ctx context.Context) error
}

// Config says what a node is. Every field is required.
type Config struct {
	// Hostname is the MagicDNS label to ask for.
	Hostname string
	// ControlURL is the control plane.
	ControlURL string
	// Dir is a folder on disk for this node alone: what is in it can be lost without losing the identity.
	Dir   string
	State State
	// MintKey makes a key for one enrolment. It is called only when State holds no identity, or when the control plane no
	// longer accepts it: an enrolled node is never started with a key (P11).
	MintKey func(ctx context.Context) (string, error)
	// Up is called each time a new server is on the tailnet. It must return soon.
	Up func(*Up)
	// Down is called before such a server closes, and returns when nothing uses it any more.
	Down func()
	Log  *slog.Logger
}

// Up is a server that is on the tailnet.
type Up struct {
	Server *tsnet.Server
	// DNSName is the name that the control plane gave, with a trailing dot.
	DNSName   string
	Addresses []netip.Addr
	StableID  string
	NodeKey   string
	Tags      []string
	// KeyExpiry is when the control plane ends the node's login; zero means never.
	KeyExpiry time.Time
	// Remembered says that the control plane did not answer, and that the server serves from what an earlier one was told.
	Remembered bool
}

// Node is a supervised identity.
type Node struct {
	config  Config
	limits  limits
	changed chan struct{}
	again   chan struct{} // one slot: Reenrol was called

	mu sync.Mutex
	// mu guards following
	seen   Observation
	forget bool // the identity is to be forgotten before the next attempt
}

// limits are the supervisor's times; tests shorten them.
type limits struct {
	// start is how long a server may take to be on the tailnet.
	start time.Duration
	// settle is how long a server that has its network map may wait for a relay before it is taken to be up without one.
	settle time.Duration
	// look is how often it is looked whether the control plane is still there.
	look time.Duration
	// save is how often the network map is kept for a start without the control plane, when only peers changed.
	save time.Duration
	// firstPause and longestPause bound the back-off between attempts.
	firstPause, longestPause time.Duration
}

// New makes a node. Nothing runs before Run.
func New(c Config) *Node {
	return &Node{
		config: c, changed: make(chan struct{}, 1), again: make(chan struct{}, 1),
		limits: limits{
			start: 40 * time.Second, settle: 5 * time.Second, look: 5 * time.Second, save: time.Minute,
			firstPause: time.Second, longestPause: time.Minute,
		},
		seen: Observation{Phase: Starting, Message: "the node is starting", Since: time.Now()},
	}
}

// Changed fires after an observation changed, at least once for any number of changes.
func (n *Node) Changed() <-chan struct{} { return n.changed }

// Reenrol has the node forget its identity and enrol again: its device is gone at the control plane.
func (n *Node) Reenrol() {
	n.mu.Lock()
	n.forget = true
	n.mu.Unlock()
	select {
	case n.again <- struct{}{}:
	default:
	}
}

// forgets reports whether the identity is to be forgotten.
func (n *Node) forgets() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forget
}
