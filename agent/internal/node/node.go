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

// State keeps a node's keys, durably and in secret.
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
}

// Phase is what a node is at.
type Phase string

// The phases.
const (
	Starting           Phase = "Starting"
	Running            Phase = "Running"
	NeedsLogin         Phase = "NeedsLogin"
	KeyRefused         Phase = "KeyRefused"
	ControlUnreachable Phase = "ControlUnreachable"
)

// Observation is what is to be seen of a node.
type Observation struct {
	Phase Phase
	// Message says in plain words what the node is at, and what to do where something is wrong.
	Message string
	// Since is when Phase last changed.
	Since     time.Time
	DNSName   string
	Addresses []netip.Addr
}

// Node is a supervised identity.
type Node struct {
	config  Config
	changed chan struct{}

	mu sync.Mutex
	// mu guards following
	seen   Observation
	forget bool   // the identity is to be forgotten before the next attempt
	end    func() // ends the running attempt; nil between attempts
}

// New makes a node. Nothing runs before Run.
func New(c Config) *Node {
	return &Node{config: c, changed: make(chan struct{}, 1), seen: Observation{Phase: Starting, Message: "the node is starting", Since: time.Now()}}
}

// Observe gives what is to be seen now.
func (n *Node) Observe() Observation {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

// Changed fires after an observation changed, at least once for any number of changes.
func (n *Node) Changed() <-chan struct{} { return n.changed }

// Reenrol has the node forget its identity and enrol again: its device is gone at the control plane.
func (n *Node) Reenrol() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget = true
	if n.end != nil {
		n.end()
	}
}

// observe records a phase.
func (n *Node) observe(phase Phase, message string) {
	n.mu.Lock()
	if n.seen.Phase != phase {
		n.seen.Since = time.Now()
	}
	n.seen.Phase, n.seen.Message = phase, message
	if phase != Running {
		n.seen.DNSName, n.seen.Addresses = "", nil
	}
	n.mu.Unlock()
	n.signal()
}

func (n *Node) observeUp(up *Up) {
	n.mu.Lock()
	if n.seen.Phase != Running {
		n.seen.Since = time.Now()
	}
	n.seen.Phase, n.seen.Message = Running, "on the tailnet as "+up.DNSName
	n.seen.DNSName, n.seen.Addresses = up.DNSName, up.Addresses
	n.mu.Unlock()
	n.signal()
}

func (n *Node) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}
