package edge

import (
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Snapshot is the whole wanted data plane of one identity. It is immutable
// once applied. nil means: serve nothing.
type Snapshot struct {
	TCP          map[uint16]Stream
	UDP          map[uint16]Datagram
	HTTPS        *HTTPS // nil: nothing listens on 443
	RedirectHTTP bool   // X3: port 80 answers 308 to https for the names of HTTPS, nothing else
}

// Stream is a tcp expose. Targets are "host:port"; the next is tried when a
// connection to one can't be made.
type Stream struct {
	Expose        string
	Targets       []string
	ProxyProtocol string // "", "v1" or "v2", sent to the backend
}

// Datagram is a udp expose. A flow keeps its target.
type Datagram struct {
	Expose      string
	Targets     []string
	IdleTimeout time.Duration // without a datagram in either direction; 0: 60 s
}

// HTTPS is everything behind port 443. Without any certificate the port stays closed (C4).
type HTTPS struct {
	// Hosts maps a served host (lower case, no trailing dot) to its route.
	Hosts map[string]Host
	// Certificates are by name; "*.example.org" covers one label. A host without one is not served.
	// A name without a host is answered per X5.
	Certificates map[string]*tls.Certificate
}

// Host is an http expose.
type Host struct {
	Expose  string
	Targets []string
}

const (
	httpPort  = 80
	httpsPort = 443
)

// plane is a compiled snapshot. Nothing in it changes after the swap.
type plane struct {
	streams   map[uint16]*streamRoute
	datagrams map[uint16]*datagramRoute
	web       *webPlane // nil: 443 is not HTTPS
	redirect  *redirectPlane
	backends  map[string]*backend // by backendKey
}

type streamRoute struct {
	Stream
	rotation *rotation
}

type datagramRoute struct {
	Datagram
	rotation *rotation
}

// webPlane is what is behind port 443.
type webPlane struct {
	server *webServer
	hosts  map[string]*hostRoute // served hosts only
	certs  map[string]*nameTLS
	served []string // keys of hosts, sorted
}

type hostRoute struct {
	expose  string
	backend *backend
}

// redirectPlane is what is behind port 80.
type redirectPlane struct {
	server *webServer
	names  map[string]bool
}

// ports returns the ports that the plane needs open.
func (p *plane) ports() map[portKey]bool {
	wanted := make(map[portKey]bool)
	for port := range p.streams {
		wanted[portKey{"tcp", port}] = true
	}
	for port := range p.datagrams {
		wanted[portKey{"udp", port}] = true
	}
	if p.web != nil {
		wanted[portKey{"tcp", httpsPort}] = true
	}
	if p.redirect != nil {
		wanted[portKey{"tcp", httpPort}] = true
	}
	return wanted
}

func (p *plane) servers() []*webServer {
	var s []*webServer
	if p.web != nil {
		s = append(s, p.web.server)
	}
	if p.redirect != nil {
		s = append(s, p.redirect.server)
	}
	return s
}

// compile turns a snapshot into a plane that takes over from prev whatever is
// unchanged: rotations, transports, TLS configurations and HTTP servers.
func (e *Edge) compile(s *Snapshot, prev *plane) (*plane, error) {
	if s == nil {
		s = &Snapshot{}
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	next := &plane{
		streams:   make(map[uint16]*streamRoute, len(s.TCP)),
		datagrams: make(map[uint16]*datagramRoute, len(s.UDP)),
		backends:  make(map[string]*backend),
	}
	for port, st := range s.TCP {
		var old *rotation
		if r := prev.streams[port]; r != nil {
			old = r.rotation
		}
		next.streams[port] = &streamRoute{Stream: st, rotation: old.orNew(st.Targets)}
	}
	for port, d := range s.UDP {
		var old *rotation
		if r := prev.datagrams[port]; r != nil {
			old = r.rotation
		}
		if d.IdleTimeout <= 0 {
			d.IdleTimeout = defaultIdle
		}
		next.datagrams[port] = &datagramRoute{Datagram: d, rotation: old.orNew(d.Targets)}
	}
	if s.HTTPS != nil {
		next.web = e.compileWeb(s.HTTPS, prev, next.backends)
		if s.RedirectHTTP {
			next.redirect = e.compileRedirect(s.HTTPS, prev)
		}
	}
	return next, nil
}

// check refuses what can't be served side by side.
func (s *Snapshot) check() error {
	if st, ok := s.TCP[httpsPort]; ok && s.HTTPS != nil {
		return fmt.Errorf("expose %q takes port 443, which HTTPS needs", st.Expose)
	}
	if st, ok := s.TCP[httpPort]; ok && s.HTTPS != nil && s.RedirectHTTP {
		return fmt.Errorf("expose %q takes port 80, which the redirection to https needs", st.Expose)
	}
	for _, st := range s.TCP {
		if st.ProxyProtocol != "" && st.ProxyProtocol != "v1" && st.ProxyProtocol != "v2" {
			return fmt.Errorf(`expose %q has PROXY protocol %q: it must be "v1" or "v2"`, st.Expose, st.ProxyProtocol)
		}
	}
	return nil
}

func (e *Edge) compileWeb(h *HTTPS, prev *plane, backends map[string]*backend) *webPlane {
	var old webPlane
	if prev.web != nil {
		old = *prev.web
	}
	w := &webPlane{
		server: old.server,
		hosts:  make(map[string]*hostRoute, len(h.Hosts)),
		certs:  make(map[string]*nameTLS, len(h.Certificates)),
	}
	for name, cert := range h.Certificates {
		name = foldName(name)
		if cert != nil && len(cert.Certificate) > 0 {
			w.certs[name] = old.certs[name].orNew(e.tls, name, cert)
		}
	}
	if len(w.certs) == 0 {
		return nil
	}
	for name, host := range h.Hosts {
		name = foldName(name)
		if w.certificate(name) == nil {
			continue
		}
		key := backendKey(host.Targets)
		b := backends[key]
		if b == nil {
			b = prev.backends[key]
		}
		if b == nil {
			b = e.newBackend(host.Targets)
		}
		backends[key] = b
		w.hosts[name] = &hostRoute{expose: host.Expose, backend: b}
	}
	w.served = slices.Sorted(maps.Keys(w.hosts))
	if w.server == nil {
		w.server = e.newHTTPSServer()
	}
	return w
}

func (e *Edge) compileRedirect(h *HTTPS, prev *plane) *redirectPlane {
	r := &redirectPlane{names: make(map[string]bool, len(h.Hosts))}
	for name := range h.Hosts {
		r.names[foldName(name)] = true
	}
	for name := range h.Certificates {
		r.names[foldName(name)] = true
	}
	if prev.redirect != nil {
		r.server = prev.redirect.server
	} else {
		r.server = e.newRedirectServer()
	}
	return r
}

// certificate returns what covers name, or nil: its own certificate, else a wildcard's.
func (w *webPlane) certificate(name string) *nameTLS {
	if c := w.certs[name]; c != nil {
		return c
	}
	_, parent, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	return w.certs["*."+parent]
}
