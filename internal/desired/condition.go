package desired

import (
	"slices"
	"strings"
	"time"
)

// ConditionType names what a condition speaks of (R1).
type ConditionType string

// The conditions of an ingress. A tailnet and an issuer have Ready alone.
const (
	Registered        ConditionType = "Registered"
	PolicyReady       ConditionType = "PolicyReady"
	TLSReady          ConditionType = "TLSReady"
	BackendsReachable ConditionType = "BackendsReachable"
	Ready             ConditionType = "Ready"
)

// Truth is a condition's status.
type Truth string

// The values of Truth.
const (
	True      Truth = "True"
	False     Truth = "False"
	Uncertain Truth = "Unknown"
)

// Reason is a condition's reason: one word of a closed set.
type Reason string

// The reasons.
const (
	ReasonOK                 Reason = "OK"
	ReasonPending            Reason = "Pending"
	ReasonNotNeeded          Reason = "NotNeeded"
	ReasonInvalidSpec        Reason = "InvalidSpec"
	ReasonInvalidDNSName     Reason = "InvalidDNSName"
	ReasonDNSNameConflict    Reason = "DNSNameConflict"
	ReasonHostnameConflict   Reason = "HostnameConflict"
	ReasonTagConflict        Reason = "TagConflict"
	ReasonReferenceMissing   Reason = "ReferenceMissing"
	ReasonStarting           Reason = "Starting"
	ReasonControlPlaneAway   Reason = "ControlPlaneAway"
	ReasonCredentialRefused  Reason = "CredentialRefused"
	ReasonUnsupported        Reason = "Unsupported"
	ReasonDeviceMissing      Reason = "DeviceMissing"
	ReasonPolicyRefused      Reason = "PolicyRefused"
	ReasonPolicyNotWritten   Reason = "PolicyNotWritten"
	ReasonInvalidCertificate Reason = "InvalidCertificate"
	ReasonIssuerFailed       Reason = "IssuerFailed"
	ReasonHandshakeFailed    Reason = "HandshakeFailed"
	ReasonBackendUnreachable Reason = "BackendUnreachable"
	ReasonListenFailed       Reason = "ListenFailed"
	ReasonConditionsFalse    Reason = "ConditionsFalse"
	ReasonDeleting           Reason = "Deleting"
)

// Condition is one observation about one object.
type Condition struct {
	Type   ConditionType `json:"type"`
	Status Truth         `json:"status"`
	Reason Reason        `json:"reason"`
	// Message says in plain words what was seen and, where something is wrong, what to do.
	Message string `json:"message"`
	// Generation is the spec revision that the observation speaks of. An older one than the object's counts as unknown.
	Generation int64 `json:"generation"`
	// Since is when Status last changed.
	Since time.Time `json:"since"`
}

// Conditions holds at most one condition of each type, in the order of the types' names.
type Conditions []Condition

// Set records c, and keeps Since unless the status changes. It reports whether anything but the time differs.
func (cs *Conditions) Set(c Condition, now time.Time) (changed bool) {
	c.Since = now
	i := slices.IndexFunc(*cs, func(x Condition) bool { return x.Type == c.Type })
	if i < 0 {
		*cs = append(*cs, c)
		slices.SortFunc(*cs, func(a, b Condition) int { return strings.Compare(string(a.Type), string(b.Type)) })
		return true
	}
	old := (*cs)[i]
	if old.Status == c.Status {
		c.Since = old.Since
	}
	(*cs)[i] = c
	old.Since = c.Since
	return old != c
}

// Get finds the condition of a type as it stands for a spec of this generation: one that speaks of an older spec, or that
// is absent, is Unknown.
func (cs Conditions) Get(t ConditionType, generation int64) Condition {
	for _, c := range cs {
		if c.Type == t && c.Generation >= generation {
			return c
		}
	}
	return Condition{Type: t, Status: Uncertain, Reason: ReasonPending, Message: "not observed yet", Generation: generation}
}
