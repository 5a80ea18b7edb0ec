// Package controlplane says what Postern needs of a tailnet's control plane, whichever one it is. Each control plane has
// a package of its own below this one that speaks its dialect.
package controlplane

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/policy"
)

// Client is a connection to one control plane with one set of credentials. It is safe for concurrent use. Every call ends
// within a bounded time and retries by itself what is safe to retry; errors wrap the sentinels of this package.
type Client interface {
	Prober
	Nodes
	Policies
}

// Prober finds out what a control plane is and what it lacks.
type Prober interface {
	// Probe looks at reachability, credentials, version, policy and clock. Each fault is a Problem in the facts. The
	// error is set as well if nothing can be done with the control plane; the facts then hold what is known.
	Probe(ctx context.Context) (Facts, error)
}

// Nodes are the devices of the tailnet.
type Nodes interface {
	// MintKey makes a key that enrols one node with the given tags within ttl.
	MintKey(ctx context.Context, tags []string, ttl time.Duration) (AuthKey, error)
	// Nodes lists all nodes, in the order of their ids.
	Nodes(ctx context.Context) ([]Node, error)
	// DeleteNode deletes a node. One that is not there is a success. The node itself may not be told.
	DeleteNode(ctx context.Context, id string) error
	// RenameNode sets a node's MagicDNS label.
	RenameNode(ctx context.Context, id, name string) error
	// SetTags replaces a node's tags; there must be at least one.
	SetTags(ctx context.Context, id string, tags []string) error
}

// Policies is the tailnet's policy document.
type Policies interface {
	// Policy returns the document, or ErrNoPolicy if none has been set.
	Policy(ctx context.Context) (Policy, error)
	// CheckPolicy asks the control plane to validate a document, its tests included, without writing it. What is wrong
	// with it comes back as a *PolicyError.
	CheckPolicy(ctx context.Context, text []byte) error
	// SetPolicy checks a document, writes it and reads it back. It returns ErrPolicyMoved, and writes nothing, if the
	// document is not was any more; was is the zero Policy where Policy gave ErrNoPolicy.
	SetPolicy(ctx context.Context, text []byte, was Policy) error
}

// Policy is a policy document and the control plane's mark of its version.
type Policy struct {
	Text    []byte
	Version string // opaque; empty where the control plane has none
}

// Node is a device of the tailnet.
type Node struct {
	ID        string
	Name      string // as the device calls itself
	GivenName string // its MagicDNS label
	NodeKey   string // "nodekey:…"
	Tags      []string
	Addresses []netip.Addr
	Online    bool
	User      string // empty for a tagged node
	Created   time.Time
	LastSeen  time.Time // zero if never
	Expires   time.Time // of its key; zero if never
}

// Secret is text that does not show itself: printed, logged or encoded it is "[redacted]". Convert it to string to use it.
type Secret string

const redacted = "[redacted]"

func (Secret) String() string { return redacted }

// GoString keeps %#v from showing it.
func (Secret) GoString() string { return redacted }

// LogValue keeps slog from showing it.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON keeps encoding/json from showing it.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// AuthKey enrols one node.
type AuthKey struct {
	ID      string
	Secret  Secret
	Expires time.Time
}

// Feature is something that not every control plane has.
type Feature string

// The features.
const (
	FeatureOAuthClients Feature = "oauth_clients" // making OAuth clients
	FeatureCertificates Feature = "certificates"  // certificates for MagicDNS names
	FeatureSettings     Feature = "settings"      // reading and writing tailnet settings
	FeatureServices     Feature = "services"      // Tailscale Services
	FeatureDNS          Feature = "dns"           // nameservers, split DNS and records by API
	FeaturePolicyGuard  Feature = "policy_guard"  // a policy write that is refused if the document has changed
	FeatureBaseDomain   Feature = "base_domain"   // reading the MagicDNS suffix
)

// PolicyMode says where a control plane keeps its policy.
type PolicyMode string

// The modes.
const (
	PolicyUnknown  PolicyMode = ""
	PolicyDatabase PolicyMode = "database"
	PolicyFile     PolicyMode = "file" // a file on its host, which the API can't write
)

// Facts is what is known about a control plane.
type Facts struct {
	Kind           string // "headscale"
	Version        string // as it reports it, e.g. "v0.29.2"
	PolicyMode     PolicyMode
	PolicyWritable bool
	Names          policy.Names // what the policy defines
	Users          []string     // names of users as rules write them, e.g. "ops@"; sorted
	// Skew is how far the control plane's clock is ahead of ours, to the second.
	Skew time.Duration
	// Lacks holds the features that are not there, each with why and what to do instead.
	Lacks    map[Feature]string
	Problems []Problem
}

// Problem is a fault, or a lack that may matter.
type Problem struct {
	ID      string // stable, e.g. ProblemPolicyFile
	Summary string // one line
	Detail  string // what, where, why and what to do
}

// The ids of problems.
const (
	ProblemUnreachable    = "unreachable"
	ProblemWrongServer    = "wrong_server"
	ProblemCredentials    = "credentials"
	ProblemVersion        = "version"
	ProblemPolicyFile     = "policy_file_mode" // matters only where Postern manages the policy
	ProblemPolicyUnparsed = "policy_unparsed"
	ProblemClock          = "clock_skew"
	ProblemPlainHTTP      = "plain_http"
	ProblemRequest        = "request" // an answer that none of the above explains
)
