package edge

import (
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// portKey is how listeners are compared.
type portKey struct {
	network string
	port    uint16
}

// listener is an open port. What a connection on it becomes is decided by the
// plane that is current when it arrives, so a port may change its role without
// being closed.
type listener struct {
	key     portKey
	ln      net.Listener
	open    atomic.Int64  // connections or flows that came in here and are still open
	lost    atomic.Bool   // it was closed from underneath
	closing chan struct{} // closed by close
	done    chan struct{} // closed when the accept loop has ended
}

func (l *listener) close() {
	close(l.closing)
	l.ln.Close() // its error could only say that it is closed already
	<-l.done
}

// openMissing opens the wanted ports that are not open. Nothing is accepted on
// them yet. The caller holds mu.
func (e *Edge) openMissing(wanted map[portKey]bool) ([]*listener, error) {
	var opened []*listener
	var errs []error
	for key := range wanted {
		if l := e.listeners[key]; l != nil {
			if !l.lost.Load() {
				continue
			}
			l.close()
			delete(e.listeners, key)
		}
		ln, err := e.network.Listen(key.network, ":"+strconv.Itoa(int(key.port)))
		if err != nil {
			errs = append(errs, &ListenError{Network: key.network, Port: key.port, Err: err})
			continue
		}
		l := &listener{key: key, ln: ln, closing: make(chan struct{}), done: make(chan struct{})}
		e.listeners[key] = l
		opened = append(opened, l)
	}
	return opened, errors.Join(errs...)
}

// closeUnwanted closes the ports that are not in wanted. What came in through
// them stays open. The caller holds mu.
func (e *Edge) closeUnwanted(wanted map[portKey]bool) {
	for key, l := range e.listeners {
		if !wanted[key] {
			l.close()
			delete(e.listeners, key)
		}
	}
}

const maxAcceptDelay = time.Second

// accept hands over each connection and never waits for one: tsnet drops what
// is not accepted within a second.
func (e *Edge) accept(l *listener) {
	defer close(l.done)
	var delay time.Duration
	for {
		c, err := l.ln.Accept()
		if err == nil {
			delay = 0
			e.admit(l, c)
			continue
		}
		select {
		case <-l.closing:
			return
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			l.lost.Store(true)
			e.opts.Log.Error("listener lost", "network", l.key.network, "port", l.key.port, "err", err)
			return
		}
		// Out of descriptors or memory: spinning would make it worse.
		delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
		e.opts.Log.Warn("accepting", "network", l.key.network, "port", l.key.port, "err", err, "retry_in", delay)
		select {
		case <-l.closing:
			return
		case <-time.After(delay):
		}
	}
}

// admit gives a connection to whatever the current plane has on its port, or refuses it.
func (e *Edge) admit(l *listener, c net.Conn) {
	p := e.current.Load()
	if l.key.network == "udp" {
		e.admitFlow(l, c, p.datagrams[l.key.port])
		return
	}
	expose, serve := "", (func())(nil)
	if rt := p.streams[l.key.port]; rt != nil {
		expose = rt.Expose
		serve = func() { e.startStream(l, c, rt) }
	} else if p.web != nil && l.key.port == httpsPort {
		serve = func() { e.startWeb(l, c, p.web.server) }
	} else if p.redirect != nil && l.key.port == httpPort {
		serve = func() { e.startWeb(l, c, p.redirect.server) }
	}
	if serve == nil { // the port is about to close
		abort(c)
		return
	}
	if l.open.Add(1) > int64(e.opts.MaxConns) {
		l.open.Add(-1)
		abort(c)
		e.opts.Metrics.Rejected(expose, RejectTooMany)
		return
	}
	serve()
}

// abort closes a connection so that the peer does not take it for a clean end,
// where the transport can say so: TLS without close_notify, TCP with RST.
func abort(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	raw := c
	if wc, ok := c.(*webConn); ok {
		raw = wc.Conn
	}
	if t, ok := raw.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// tracked is something open: a stream, a flow, an HTTP connection.
type tracked interface {
	// hasten is called when the drain starts: end soon if nothing is under way.
	hasten()
	// cut ends it at once.
	cut()
}

// registry knows everything that is open, so that Shutdown can wait for it and
// cut what is left. It is touched when something opens and closes, never per
// request or byte.
type registry struct {
	mu       sync.Mutex // guards following
	open     map[tracked]struct{}
	draining bool
	empty    chan struct{} // closed once draining and nothing is open
}

func newRegistry() registry {
	return registry{open: make(map[tracked]struct{}), empty: make(chan struct{})}
}

// add reports whether t may go on; false once the drain has started.
func (r *registry) add(t tracked) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return false
	}
	r.open[t] = struct{}{}
	return true
}

// remove is the last act of what was added.
func (r *registry) remove(t tracked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, t)
	r.signal()
}

func (r *registry) signal() {
	if !r.draining || len(r.open) > 0 {
		return
	}
	select {
	case <-r.empty:
	default:
		close(r.empty)
	}
}

// drain refuses what is new and returns a channel that is closed when nothing is open any more.
func (r *registry) drain() <-chan struct{} {
	r.mu.Lock()
	r.draining = true
	r.signal()
	r.mu.Unlock()
	for _, t := range r.all() {
		t.hasten()
	}
	return r.empty
}

// cut ends everything and returns how much it was.
func (r *registry) cut() int {
	all := r.all()
	for _, t := range all {
		t.cut()
	}
	return len(all)
}

func (r *registry) all() []tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]tracked, 0, len(r.open))
	for t := range r.open {
		all = append(all, t)
	}
	return all
}

func (r *registry) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}
