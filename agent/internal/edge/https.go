package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second // TLS handshake included; not for bodies and tunnels
	keepAliveIdle     = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	pingAfter         = 30 * time.Second // HTTP/2: of silence, to find peers that are gone
	pingTimeout       = 15 * time.Second
)

// webServer is an http.Server that is fed by accept loops.
type webServer struct {
	kind string // for metrics: "https" or "http"
	http *http.Server
	in   *handoff
	done chan struct{} // closed when Serve has returned
}

func (e *Edge) newHTTPSServer() *webServer {
	h := &http.Server{
		Handler:   http.HandlerFunc(e.serveHTTPS),
		TLSConfig: e.tls.Clone(), // http.Server writes to it
		HTTP2:     &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	return e.startServer("https", h, func(ln net.Listener) error { return h.ServeTLS(ln, "", "") })
}

// startServer adds what both servers have in common. The caller holds mu.
func (e *Edge) startServer(kind string, h *http.Server, serve func(net.Listener) error) *webServer {
	h.ReadHeaderTimeout = e.headerTimeout
	h.IdleTimeout = keepAliveIdle
	h.MaxHeaderBytes = maxHeaderBytes
	h.DisableGeneralOptionsHandler = true
	h.ErrorLog = slog.NewLogLogger(e.opts.Log.Handler(), slog.LevelDebug) // clients' mistakes
	h.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		if wc, ok := c.(*webConn); ok {
			return wc.context(ctx)
		}
		return ctx
	}
	s := &webServer{kind: kind, http: h, in: newHandoff(), done: make(chan struct{})}
	e.servers = append(e.servers, s)
	go func() {
		defer close(s.done)
		serve(s.in) // returns when in is closed
	}()
	return s
}

// drain takes nothing new, sends GOAWAY and closes what is idle. Running
// requests finish, and then close their connection.
func (s *webServer) drain() {
	s.in.Close()
	// One pass is enough: the server remembers that it is shutting down. Who
	// waits for the end waits for the registry.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.http.Shutdown(ctx)
}

func (s *webServer) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// handoff is the listener of a webServer.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handoff) Addr() net.Addr { return &net.TCPAddr{Port: httpsPort} }

// give reports whether the server took c. It waits only for a server that is
// about to call Accept again: http.Server starts a goroutine per connection.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

type webConnKey struct{}

// webConn is the raw connection below TLS. It is held by being open and by
// each running request, and leaves the registry when nothing holds it.
type webConn struct {
	net.Conn
	edge   *Edge
	from   *listener
	kind   string
	holds  atomic.Int64
	closed atomic.Bool
	used   atomic.Bool                        // a request was read
	cancel atomic.Pointer[context.CancelFunc] // of the context of its requests
}

// context returns the context that the connection's requests derive from. It
// ends with the connection.
func (c *webConn) context(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, webConnKey{}, c))
	c.cancel.Store(&cancel)
	if c.closed.Load() {
		cancel()
	}
	return ctx
}

func (e *Edge) startWeb(l *listener, c net.Conn, s *webServer) {
	wc := &webConn{Conn: c, edge: e, from: l, kind: s.kind}
	wc.holds.Store(1)
	if !e.open.add(wc) {
		l.open.Add(-1)
		abort(c)
		return
	}
	e.opts.Metrics.Opened("", s.kind)
	if !s.in.give(wc) {
		abort(c)
		wc.Close()
	}
}

// holdConn holds the connection that a request came in on, until release.
func holdConn(r *http.Request) *webConn {
	c, ok := r.Context().Value(webConnKey{}).(*webConn)
	if !ok || !c.hold() {
		panic(http.ErrAbortHandler) // closed between the request and its handler
	}
	return c
}

// hold reports whether the connection may begin a request.
func (c *webConn) hold() bool {
	for {
		n := c.holds.Load()
		if n == 0 {
			return false
		}
		if c.holds.CompareAndSwap(n, n+1) {
			c.used.Store(true)
			return true
		}
	}
}

func (c *webConn) release() {
	if c.holds.Add(-1) == 0 {
		c.from.open.Add(-1)
		c.edge.opts.Metrics.Closed("", c.kind, 0, 0)
		c.edge.open.remove(c)
	}
}

// Close is called by http.Server, by cut, or by a tunnel.
func (c *webConn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		if cancel := c.cancel.Load(); cancel != nil {
			(*cancel)()
		}
		c.release()
	}
	return err
}

// hasten closes a connection on which nothing was asked yet. http.Server does
// the same for those it knows to be idle.
func (c *webConn) hasten() {
	if !c.used.Load() {
		c.Close()
	}
}

func (c *webConn) cut() {
	abort(c)
}

// serveHTTPS answers a request that came in through TLS.
func (e *Edge) serveHTTPS(w http.ResponseWriter, r *http.Request) {
	defer holdConn(r).release()
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.URL.Path, "/") {
		e.opts.Metrics.Rejected("", RejectMalformed)
		if r.Method == http.MethodConnect {
			answer(w, r, http.StatusNotImplemented, "CONNECT is not supported here.\n")
		} else {
			answer(w, r, http.StatusBadRequest, "The request target must be a path.\n")
		}
		return
	}
	web := e.current.Load().web
	name := foldName(r.TLS.ServerName)
	if web == nil || hostName(r.Host) != name || (r.URL.Scheme != "" && r.URL.Scheme != "https") {
		e.misdirected(w, r)
		return
	}
	if rt := web.hosts[name]; rt != nil {
		e.proxy(w, r, rt)
		return
	}
	if web.certificate(name) == nil { // withdrawn since the handshake
		e.misdirected(w, r)
		return
	}
	web.answerUnrouted(w, r)
}

// misdirected makes the client try again on a connection of its own: HTTP/2
// clients share one between names of one certificate (RFC 9110 section 15.5.20).
func (e *Edge) misdirected(w http.ResponseWriter, r *http.Request) {
	e.opts.Metrics.Rejected("", RejectMisdirected)
	answer(w, r, http.StatusMisdirectedRequest, "This connection was opened for another host.\n")
}

// answerUnrouted answers for a certificate name that has no route (X5).
func (p *webPlane) answerUnrouted(w http.ResponseWriter, r *http.Request) {
	if len(p.served) == 1 {
		redirect(w, p.served[0], r)
		return
	}
	var b strings.Builder
	b.WriteString("Nothing is served under this name.")
	if len(p.served) > 0 {
		b.WriteString(" These are:")
	}
	b.WriteString("\n")
	for _, host := range p.served {
		fmt.Fprintf(&b, "https://%s/\n", host)
	}
	answer(w, r, http.StatusNotFound, b.String())
}

// answer sends a text of our own.
func answer(w http.ResponseWriter, r *http.Request, code int, text string) {
	leaveBody(w, r)
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	w.Write([]byte(text))
}
