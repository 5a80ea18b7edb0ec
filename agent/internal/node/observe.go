package node

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Phase is what a node is at.
type Phase string

// The phases.
const (
	// Starting is before the first server is up, and between two.
	Starting Phase = "Starting"
	// Running is on the tailnet.
	Running Phase = "Running"
	// NeedsLogin is known to the control plane no longer, or expired there: the node enrols again.
	NeedsLogin Phase = "NeedsLogin"
	// NeedsApproval waits for an admin of the tailnet.
	NeedsApproval Phase = "NeedsApproval"
	// KeyUnavailable has no key to enrol with.
	KeyUnavailable Phase = "KeyUnavailable"
	// KeyRefused had a key that the control plane did not take.
	KeyRefused Phase = "KeyRefused"
	// ControlUnreachable waits for the control plane.
	ControlUnreachable Phase = "ControlUnreachable"
	// StateUnavailable cannot read or keep its identity.
	StateUnavailable Phase = "StateUnavailable"
)

// Observation is what is to be seen of a node.
type Observation struct {
	Phase Phase
	// Message says in plain words what the node is at, and what to do where something is wrong.
	Message string
	// Since is when Phase last changed.
	Since time.Time
	// DNSName, with a trailing dot, to KeyExpiry are what the control plane gave; empty while the node is not up.
	DNSName   string
	Addresses []netip.Addr
	StableID  string
	NodeKey   string
	Tags      []string
	KeyExpiry time.Time
	// NameConflict says in plain words that the name given is not the one asked for (P11); empty where it is.
	NameConflict string
	// ControlAway is since when a node that is up has no contact with the control plane; zero while it has.
	ControlAway time.Time
}

// Observe gives what is to be seen now.
func (n *Node) Observe() Observation {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	seen.Addresses, seen.Tags = slices.Clone(seen.Addresses), slices.Clone(seen.Tags)
	return seen
}

// observe records a phase in which the node is not up.
func (n *Node) observe(phase Phase, message string) {
	message = redact(message)
	n.mu.Lock()
	if n.seen.Phase == phase && n.seen.Message == message {
		n.mu.Unlock()
		return
	}
	since := n.seen.Since
	if n.seen.Phase != phase {
		since = time.Now()
	}
	n.seen = Observation{Phase: phase, Message: message, Since: since}
	n.mu.Unlock()
	n.signal()
}

// observeUp records what a node that is up was told of itself.
func (n *Node) observeUp(up *Up) {
	n.mu.Lock()
	since, away := n.seen.Since, n.seen.ControlAway
	if n.seen.Phase != Running {
		since, away = time.Now(), time.Time{}
	}
	if up.Remembered && away.IsZero() {
		away = time.Now()
	}
	n.seen = Observation{
		Phase: Running, Message: "on the tailnet as " + strings.TrimSuffix(up.DNSName, "."), Since: since, ControlAway: away,
		DNSName: up.DNSName, Addresses: up.Addresses, StableID: up.StableID, NodeKey: up.NodeKey, Tags: up.Tags,
		KeyExpiry: up.KeyExpiry, NameConflict: nameConflict(n.config.Hostname, up.DNSName),
	}
	n.mu.Unlock()
	n.signal()
}

// observeContact records whether a node that is up has contact with the control plane.
func (n *Node) observeContact(contact bool) {
	n.mu.Lock()
	if n.seen.Phase != Running || contact == n.seen.ControlAway.IsZero() {
		n.mu.Unlock()
		return
	}
	n.seen.ControlAway = time.Time{}
	if !contact {
		n.seen.ControlAway = time.Now()
	}
	n.mu.Unlock()
	n.signal()
}

func (n *Node) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// nameConflict compares the label asked for with the name given. A control plane that has the label taken adds a number.
func nameConflict(asked, given string) string {
	label, _, _ := strings.Cut(given, ".")
	if strings.EqualFold(label, asked) {
		return ""
	}
	if number, ok := strings.CutPrefix(label, strings.ToLower(asked)+"-"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
		return fmt.Sprintf("hostname %s is taken by another device of the tailnet, so the control plane gave %s; "+
			"delete or rename that device, or choose another hostname", asked, label)
	}
	return fmt.Sprintf("hostname %s was asked for, and the control plane calls the device %s; rename it there, or set hostname to %s", asked, label, label)
}
