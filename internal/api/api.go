// Package api is what the provider, the command line and the agent say to each other: paths, documents, errors, and the
// client. An error keeps its identity and its message across the wire: one table leads sentinels to status codes, and both
// sides read it.
package api

import (
	"encoding/json"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Version is the version of the API. An agent and a client of different versions refuse each other by name.
const Version = "1"

// VersionHeader carries the client's API version in a request and the agent's in an answer.
const VersionHeader = "Postern-Api-Version"

// WorkspaceHeader says for which workspace a client declares.
const WorkspaceHeader = "Postern-Workspace"

// The paths of the API.
const (
	PathVersion  = "/v1/version"
	PathSnapshot = "/v1/snapshot"
	PathPlan     = "/v1/plan"
	PathEvents   = "/v1/events"
	PathTokens   = "/v1/tokens"
	PathHealth   = "/healthz"
	PathReady    = "/readyz"
	PathMetrics  = "/metrics"
)

// MaxBody is the most that a request's body may have, in bytes.
const MaxBody = 1 << 20

// MaxWait is the longest that a request waits for a condition. A client that wants to wait longer asks again.
const MaxWait = time.Minute

// KindPath is the path of a kind's list.
func KindPath(kind desired.Kind) string { return "/v1/" + string(kind) }

// ObjectPath is the path of an object.
func ObjectPath(key desired.Key) string { return "/v1/" + key.Path() }

// Info is the answer of PathVersion.
type Info struct {
	API   string `json:"api"`
	Agent string `json:"agent"`
	// Instance is the id of the agent's store; it marks what the agent owns in a policy.
	Instance string `json:"instance"`
}

// Declaration is the body of a PUT: the spec, the secrets that go with it, and what its author was shown.
type Declaration struct {
	Spec json.RawMessage `json:"spec"`
	// Secrets are write-only values by name; no answer ever holds them. One that is absent keeps what is stored.
	Secrets map[string]string `json:"secrets,omitzero"`
	// Expect has the names that a plan showed. A declaration that would come to others is refused (ErrMoved), so that
	// nothing is served that no reviewer saw.
	Expect *Expectation `json:"expect,omitzero"`
}

// Expectation is what a plan showed as known; an absent field was not known.
type Expectation struct {
	DNSName *string   `json:"dns_name,omitzero"`
	Hosts   *[]string `json:"hosts,omitzero"`
	Tag     *string   `json:"tag,omitzero"`
}

// Document is an object as the agent answers with it.
type Document struct {
	Key       desired.Key `json:"key"`
	Revision  int64       `json:"revision"`
	Created   int64       `json:"created"`
	Workspace string      `json:"workspace,omitzero"`
	Deleting  bool        `json:"deleting,omitzero"`
	// Released is part of a snapshot's documents only, see blueprint.Object.
	Released bool            `json:"released,omitzero"`
	Spec     json.RawMessage `json:"spec"`
	Status   Status          `json:"status"`
	// Ingress is what the object comes to; nil for other kinds.
	Ingress *blueprint.Ingress `json:"ingress,omitzero"`
}

// Object decodes the document for a blueprint.
func (d *Document) Object() (blueprint.Object, error) {
	spec, err := desired.Decode(d.Key.Kind, d.Spec)
	if err != nil {
		return blueprint.Object{}, err
	}
	return blueprint.Object{
		Spec: spec, Created: d.Created, Revision: d.Revision, Workspace: d.Workspace, Deleting: d.Deleting, Released: d.Released,
	}, nil
}

// Status is what was observed of an object. Fields that its kind does not have are empty.
type Status struct {
	Conditions desired.Conditions `json:"conditions,omitzero"`

	// Of an ingress.
	MagicDNSName string    `json:"magic_dns_name,omitzero"`
	Addresses    []string  `json:"addresses,omitzero"`
	ServedHosts  []string  `json:"served_hosts,omitzero"`
	TLSNotAfter  time.Time `json:"tls_not_after,omitzero"`
	// EndpointAddresses leads each expose to "address:port" on the tailnet.
	EndpointAddresses map[string]string `json:"endpoint_addresses,omitzero"`
	DeviceID          string            `json:"device_id,omitzero"`

	// Of a tailnet.
	BaseDomain string           `json:"base_domain,omitzero"`
	Version    string           `json:"version,omitzero"`
	Facts      *blueprint.Facts `json:"facts,omitzero"`

	// Of an issuer.
	CertificatePEM string `json:"certificate_pem,omitzero"`
}

// Ready is the object's Ready condition as it stands for the spec of this revision.
func (d *Document) Ready() desired.Condition {
	return d.Status.Conditions.Get(desired.Ready, d.Revision)
}

// Snapshot is everything that a plan session compiles from.
type Snapshot struct {
	Info      Info                        `json:"info"`
	Documents []Document                  `json:"documents"`
	Claims    map[string]blueprint.Claims `json:"claims"`
	Facts     map[string]blueprint.Facts  `json:"facts"`
}

// Blueprint decodes the snapshot for compilation.
func (s *Snapshot) Blueprint() (blueprint.Snapshot, error) {
	out := blueprint.Snapshot{Claims: s.Claims, Facts: s.Facts}
	for i := range s.Documents {
		o, err := s.Documents[i].Object()
		if err != nil {
			return blueprint.Snapshot{}, err
		}
		out.Objects = append(out.Objects, o)
	}
	return out, nil
}

// PlanRequest is the body of a dry run: changes to be tried together, in order.
type PlanRequest struct {
	Changes []Change `json:"changes"`
}

// Change is one change of a dry run.
type Change struct {
	Key    desired.Key `json:"key"`
	Delete bool        `json:"delete,omitzero"`
	Declaration
}

// PlanResponse answers a dry run, which writes nothing.
type PlanResponse struct {
	// Problems are verdicts on the changed objects and on others that the changes reach.
	Problems []ObjectProblem `json:"problems"`
	// Ingresses is what each ingress that the changes reach would come to, by its key's path.
	Ingresses map[string]*blueprint.Ingress `json:"ingresses"`
	// Facts is what was observed of the tailnets among the changes, by name.
	Facts map[string]blueprint.Facts `json:"facts"`
	// Exists lists the keys among the changes that are declared already.
	Exists []desired.Key `json:"exists,omitzero"`
}

// ObjectProblem is a verdict and the object that it is against.
type ObjectProblem struct {
	Key desired.Key `json:"key"`
	blueprint.Problem
}

// Event is one event of the stream: an object changed, its status changed, or it is gone.
type Event struct {
	Key     desired.Key `json:"key"`
	Deleted bool        `json:"deleted,omitzero"`
	// Document is the object as it is now; nil where it is gone.
	Document *Document `json:"document,omitzero"`
}

// TokenRequest asks for a bearer token.
type TokenRequest struct {
	Name string `json:"name"`
	// TTL is how long the token is good for, in seconds.
	TTL int64 `json:"ttl_seconds"`
}

// Token describes a bearer token. Secret is in the answer to its creation alone.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
	Secret  string    `json:"secret,omitzero"`
}
