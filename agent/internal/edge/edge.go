// Package edge is the data plane of one ingress identity: its listeners, TLS
// by server name, HTTP and WebSocket proxying, TCP streams and UDP flows.
//
// What is wanted is a [Snapshot]. Apply compiles it and swaps one atomic
// pointer; listeners, backend connections and everything that is open stay as
// they are unless the snapshot changed exactly them (X15). What is running
// finishes on the snapshot that it began with.
package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Network opens listeners on an identity's network. *tsnet.Server has this
// method. The address is ":port". Network is "tcp" or "udp"; a "udp" listener
// yields one net.Conn per flow.
type Network interface {
	Listen(network, addr string) (net.Listener, error)
}

// DialFunc connects to a backend.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Options of an Edge. The zero value is usable.
type Options struct {
	Log     *slog.Logger // nil: nothing is logged
	Dialer  DialFunc     // nil: a net.Dialer that refuses link-local addresses (X18)
	Metrics Metrics

	MaxConns int // open connections per TCP port; 0: 8192
	// MaxFlows is the number of open UDP flows per port; 0: 1024. Each may hold 128 KiB of buffers.
	MaxFlows       int
	ConnectTimeout time.Duration // per target; 0: 5 s
}

// ErrShutdown is returned by Apply after Shutdown.
var ErrShutdown = errors.New("edge is shut down")

// ListenError says which port could not be opened. Apply tries it again the next time.
type ListenError struct {
	Network string // "tcp" or "udp"
	Port    uint16
	Err     error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("listening on %s port %d: %v", e.Network, e.Port, e.Err)
}

func (e *ListenError) Unwrap() error { return e.Err }

// Edge serves the newest snapshot that was applied. Its methods may be called
// from several goroutines.
type Edge struct {
	network Network
	opts    Options
	tls     *tls.Config
	bufs    buffers
	open    registry
	current atomic.Pointer[plane] // never nil

	headerTimeout time.Duration // readHeaderTimeout, but for tests
	draining      atomic.Bool

	mu        sync.Mutex // guards following, and serialises Apply and Shutdown
	listeners map[portKey]*listener
	servers   []*webServer // running or retired, until their goroutine has ended
}

// New returns an Edge that serves nothing until Apply. It starts no goroutine.
func New(network Network, o Options) *Edge {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dialer == nil {
		o.Dialer = guardedDialer()
	}
	if o.MaxConns == 0 {
		o.MaxConns = 8192
	}
	if o.MaxFlows == 0 {
		o.MaxFlows = 1024
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 5 * time.Second
	}
	o.Metrics = o.Metrics.filled()
	e := &Edge{
		network:       network,
		opts:          o,
		tls:           baseTLS(),
		open:          newRegistry(),
		headerTimeout: readHeaderTimeout,
		listeners:     make(map[portKey]*listener),
	}
	e.tls.GetConfigForClient = e.tlsFor
	e.current.Store(&plane{})
	return e
}

// Apply makes s what is served; nil serves nothing. A snapshot that contradicts
// itself is refused and changes nothing. Otherwise everything that can be in
// force is, and the error joins a *ListenError per port that could not be opened.
func (e *Edge) Apply(s *Snapshot) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining.Load() {
		if s == nil {
			return nil
		}
		return ErrShutdown
	}
	prev := e.current.Load()
	next, err := e.compile(s, prev)
	if err != nil {
		return err
	}
	wanted := next.ports()
	opened, err := e.openMissing(wanted)
	e.current.Store(next)
	for _, l := range opened {
		go e.accept(l)
	}
	e.closeUnwanted(wanted)
	e.retire(prev, next)
	return err
}

// retire ends what only the previous plane used. Requests that still run on it finish.
func (e *Edge) retire(prev, next *plane) {
	for key, b := range prev.backends {
		if next.backends[key] != b {
			b.retire()
		}
	}
	for _, s := range prev.servers() {
		if !slices.Contains(next.servers(), s) {
			s.drain()
		}
	}
	e.servers = slices.DeleteFunc(e.servers, (*webServer).ended)
}

// Listener is a port that is open.
type Listener struct {
	Network string // "tcp" or "udp"
	Port    uint16
}

// Serving is what an Edge really serves, which may be less than was asked for.
type Serving struct {
	Listeners []Listener // by network, then port
	Hosts     []string   // hosts that have a certificate, sorted; empty unless 443 is open
}

// Serving reports which ports are open and which hosts are answered.
func (e *Edge) Serving() Serving {
	e.mu.Lock()
	defer e.mu.Unlock()
	var s Serving
	for key, l := range e.listeners {
		if !l.lost.Load() {
			s.Listeners = append(s.Listeners, Listener{Network: key.network, Port: key.port})
		}
	}
	slices.SortFunc(s.Listeners, func(a, b Listener) int {
		if c := strings.Compare(a.Network, b.Network); c != 0 {
			return c
		}
		return int(a.Port) - int(b.Port)
	})
	web := e.current.Load().web
	if web != nil && slices.Contains(s.Listeners, Listener{"tcp", httpsPort}) {
		s.Hosts = slices.Clone(web.served)
	}
	return s
}

// cutGrace is how long Shutdown waits for goroutines to end after their connections were cut.
const cutGrace = 5 * time.Second

// Shutdown stops taking new work, lets what is running finish, and cuts what
// is left when ctx ends. It returns how many connections and flows it cut,
// after all goroutines have ended.
func (e *Edge) Shutdown(ctx context.Context) (cut int, err error) {
	e.draining.Store(true)
	e.mu.Lock()
	prev := e.current.Swap(&plane{})
	e.closeUnwanted(nil)
	e.retire(prev, &plane{})
	servers := slices.Clone(e.servers)
	e.mu.Unlock()

	empty := e.open.drain()
	select {
	case <-empty:
	case <-ctx.Done():
		cut = e.open.cut()
		select {
		case <-empty:
		case <-time.After(cutGrace):
			return cut, fmt.Errorf("ending connections that were cut: %d still open after %v", e.open.len(), cutGrace)
		}
	}
	for _, s := range servers {
		<-s.done
	}
	for _, b := range prev.backends {
		b.transport.CloseIdleConnections()
	}
	return cut, nil
}
