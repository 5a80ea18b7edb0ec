package desired

import "slices"

// Ingress is one identity on a tailnet and what it exposes.
type Ingress struct {
	Name         string            `json:"name" tfsdk:"name"`
	Namespace    *string           `json:"namespace,omitzero" tfsdk:"namespace"`
	Tailnet      string            `json:"tailnet" tfsdk:"tailnet"`
	Hostname     *string           `json:"hostname,omitzero" tfsdk:"hostname"`
	AllowFrom    []string          `json:"allow_from,omitzero" tfsdk:"allow_from"`
	Tags         []string          `json:"tags,omitzero" tfsdk:"tags"`
	TLS          *IngressTLS       `json:"tls,omitzero" tfsdk:"tls"`
	RedirectHTTP *bool             `json:"redirect_http,omitzero" tfsdk:"redirect_http"`
	Exposes      map[string]Expose `json:"exposes" tfsdk:"exposes"`
}

// IngressTLS says where the ingress's certificates come from (C1) and how names share them (X4).
type IngressTLS struct {
	Issuer *string `json:"issuer,omitzero" tfsdk:"issuer"`
	Layout *string `json:"layout,omitzero" tfsdk:"layout"`
}

// Mode is how an expose carries traffic (X1).
type Mode string

// The modes.
const (
	ModeTCP  Mode = "tcp"
	ModeUDP  Mode = "udp"
	ModeHTTP Mode = "http"
)

// The certificate layouts (X4).
const (
	LayoutPerHost = "per-host"
	LayoutSingle  = "single"
)

// Ports with a meaning of their own.
const (
	PortHTTP  = 80
	PortHTTPS = 443
)

// Expose publishes one backend.
type Expose struct {
	Mode          *Mode   `json:"mode,omitzero" tfsdk:"mode"`
	Port          *int64  `json:"port,omitzero" tfsdk:"port"`
	DNSLabel      *string `json:"dns_label,omitzero" tfsdk:"dns_label"`
	Alias         *bool   `json:"alias,omitzero" tfsdk:"alias"`
	ProxyProtocol *string `json:"proxy_protocol,omitzero" tfsdk:"proxy_protocol"`
	Backend       Backend `json:"backend" tfsdk:"backend"`
}

// Backend is where an expose sends its traffic.
type Backend struct {
	// Targets are host:port, tried in turn.
	Targets []string `json:"targets" tfsdk:"targets"`
}

var _ Object = (*Ingress)(nil)

// Key implements Object.
func (in *Ingress) Key() Key {
	return Key{Kind: KindIngress, Namespace: in.EffectiveNamespace(), Name: in.Name}
}

// EffectiveNamespace is the namespace with its default applied.
func (in *Ingress) EffectiveNamespace() string { return Value(in.Namespace, DefaultNamespace) }

// EffectiveMode is the mode with its default applied.
func (e Expose) EffectiveMode() Mode { return Value(e.Mode, ModeTCP) }

// EffectivePort is the port with its default applied; 0 where none is set and the mode has none.
func (e Expose) EffectivePort() int64 {
	if e.EffectiveMode() == ModeHTTP {
		return PortHTTPS
	}
	return Value(e.Port, 0)
}

// Protocol is the transport that the expose listens on: "tcp" or "udp".
func (e Expose) Protocol() string {
	if e.EffectiveMode() == ModeUDP {
		return "udp"
	}
	return "tcp"
}

// Secrets implements Object.
func (in *Ingress) Secrets() map[string]*Secret { return nil }

// References implements Object.
func (in *Ingress) References() []Reference {
	refs := []Reference{{
		Path: At("tailnet"), Value: in.Tailnet,
		Candidates: []Key{{Kind: KindTailnet, Namespace: NoNamespace, Name: in.Tailnet}},
	}}
	if in.TLS != nil && in.TLS.Issuer != nil {
		refs = append(refs, Reference{
			Path: At("tls").Attribute("issuer"), Value: *in.TLS.Issuer,
			Candidates: []Key{
				{Kind: KindIssuer, Namespace: in.EffectiveNamespace(), Name: *in.TLS.Issuer},
				{Kind: KindIssuer, Namespace: NoNamespace, Name: *in.TLS.Issuer},
			},
		})
	}
	return refs
}

// HasHTTP reports whether any expose is an http one.
func (in *Ingress) HasHTTP() bool {
	for _, e := range in.Exposes {
		if e.EffectiveMode() == ModeHTTP {
			return true
		}
	}
	return false
}

// ExposeNames gives the exposes' names in order.
func (in *Ingress) ExposeNames() []string {
	names := make([]string, 0, len(in.Exposes))
	for name := range in.Exposes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Warnings implements Object.
func (in *Ingress) Warnings() []Warning {
	if in.AllowFrom != nil || len(in.Tags) > 0 {
		return nil
	}
	return []Warning{{
		Path:    At("allow_from"),
		Summary: "Nobody is given access",
		Detail: "Without allow_from the ingress gets no grant of its own, so only rules that the tailnet's policy has already let peers in. " +
			"Add allow_from, or write allow_from = [] where that is what you want.",
	}}
}
