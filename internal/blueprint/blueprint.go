// Package blueprint says what all declared objects add up to: the names and who holds each, the certificates to ask for,
// the nodes to run, the routing tables, the policy entries, and a verdict on every object. It is pure: it does no I/O and
// knows no clock. The plan, the API's dry run and the agent's workers all read it, so what a plan showed is what is served.
package blueprint

import (
	"slices"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// Object is a declared object with what its store knows about it.
type Object struct {
	Spec desired.Object
	// Created and Revision are the store's revisions of the object's first and newest write.
	Created, Revision int64
	// Workspace names who declared the object.
	Workspace string
	// Deleting is set from the moment the object's end was asked for until nothing of it is left.
	Deleting bool
	// Released is set on a deleting object whose node is gone: from then on it needs no policy entries.
	Released bool
}

// Snapshot is everything that a blueprint is made from.
type Snapshot struct {
	Objects []Object
	// Claims by tailnet, as the last compilation left them.
	Claims map[string]Claims
	// Facts by tailnet.
	Facts map[string]Facts
}

// Facts is what was observed of a tailnet and decides what may be declared on it. The zero value knows nothing.
type Facts struct {
	// BaseDomain is the MagicDNS base domain; empty where it was not seen yet.
	BaseDomain string `json:"base_domain,omitzero"`
	// Version is the control plane's own; empty where it was not asked yet.
	Version string `json:"version,omitzero"`
	// Principals is what the tailnet's policy defines; nil where it was not read yet.
	Principals *Principals `json:"principals,omitzero"`
	// Lacks is what the control plane cannot do or refuses, and what follows from its policy (P6, P10).
	Lacks []Lack `json:"lacks,omitzero"`
}

// Principals are the names that a policy defines.
type Principals struct {
	Groups []string `json:"groups"`
	Tags   []string `json:"tags"`
	Hosts  []string `json:"hosts"`
}

// Lack is what a control plane lacks, said so that its reader knows what to do.
type Lack struct {
	ID      string         `json:"id"`
	Summary string         `json:"summary"`
	Detail  string         `json:"detail"`
	Reason  desired.Reason `json:"reason"`
	// Refuse is false where the lack is worth a warning and no more.
	Refuse bool `json:"refuse"`
}

// Problem is a verdict against an object.
type Problem struct {
	desired.FieldError
	Reason desired.Reason `json:"reason"`
	// Refuse is true where the object is to be refused. Otherwise it is accepted and its conditions say what is wrong.
	Refuse bool `json:"refuse"`
	// Name and Owner are set on conflicts: the claimed name, and who holds it (N6).
	Name  string       `json:"name,omitzero"`
	Owner *desired.Key `json:"owner,omitzero"`
}

// Ingress is what one declared ingress comes to.
type Ingress struct {
	Key       desired.Key `json:"key"`
	Tailnet   string      `json:"tailnet"`
	Namespace string      `json:"namespace"`
	// DNSName is the ingress's own name (N1); empty where its tailnet has no template, or the name breaks the rules (N9).
	DNSName string `json:"dns_name"`
	// Hostname is the MagicDNS label to ask for (N2).
	Hostname string `json:"hostname"`
	// Tag is the ingress's own tag (P4), and Tags that one and the declared ones.
	Tag  string   `json:"tag"`
	Tags []string `json:"tags"`
	// Hosts lists the names that http exposes publish: DNSName first where it is one, then sorted (N5). Never nil.
	Hosts     []string            `json:"hosts"`
	Endpoints map[string]Endpoint `json:"endpoints"`
	// Routes leads each host that is really to be served to its expose: Hosts without those that conflicts withhold,
	// and none once the ingress is deleting.
	Routes map[string]string `json:"routes"`
	// Certificates is what TLS needs; names without a route are in it (X5). None once the ingress is deleting.
	Certificates []Certificate `json:"certificates"`
	// Grant is what allow_from needs (P3); nil where allow_from is absent or empty.
	Grant *Grant `json:"grant,omitzero"`
	// Problems is the verdict; empty where nothing is wrong.
	Problems []Problem `json:"problems,omitzero"`
	// Withdrawn says that nothing of the ingress may run: its identity is another's, or its declaration does not hold.
	Withdrawn bool `json:"withdrawn,omitzero"`
}

// Endpoint is how peers reach an expose.
type Endpoint struct {
	DNSName    string       `json:"dns_name"`
	DNSAliases []string     `json:"dns_aliases"`
	URL        string       `json:"url"`
	Mode       desired.Mode `json:"mode"`
	Port       int64        `json:"port"`
}

// Certificate is a certificate to ask for.
type Certificate struct {
	// ID is stable for the ingress: the name it is for, or "single".
	ID     string      `json:"id"`
	Issuer desired.Key `json:"issuer"`
	// Names has the certificate's first name first.
	Names []string `json:"names"`
}

// Grant is a grant of the tailnet's policy, its lists sorted.
type Grant struct {
	Src []string `json:"src"`
	Dst []string `json:"dst"`
	IP  []string `json:"ip"`
}

// PolicyEntry is one thing to keep in a tailnet's policy: a grant, or a tag and its owners.
type PolicyEntry struct {
	Owner  desired.Key
	Grant  *Grant
	Tag    string
	Owners []string
}

// Refused gives the problems for which the object is to be refused, as errors.
func (in *Ingress) Refused() []*desired.FieldError {
	var errs []*desired.FieldError
	for i := range in.Problems {
		if in.Problems[i].Refuse {
			errs = append(errs, &in.Problems[i].FieldError)
		}
	}
	return errs
}

// Names lists every name of the ingress that DNS must lead to it: DNSName first, then the others sorted. Never nil.
func (in *Ingress) Names() []string {
	names := slices.Clone(in.Hosts)
	if in.DNSName != "" && !slices.Contains(names, in.DNSName) {
		names = append([]string{in.DNSName}, names...)
	}
	if names == nil {
		names = []string{}
	}
	return names
}
