package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testNet gives each port of the identity a port of its own on loopback.
type testNet struct {
	mu       sync.Mutex // guards following
	open     map[portKey]net.Listener
	listened map[portKey]int // how often
	refuse   map[portKey]error
	opaque   bool // connections are not *net.TCPConn, as with tsnet
}

func newTestNet() *testNet {
	return &testNet{open: map[portKey]net.Listener{}, listened: map[portKey]int{}, refuse: map[portKey]error{}}
}

func (n *testNet) Listen(network, addr string) (net.Listener, error) {
	port, err := strconv.Atoi(addr[1:])
	if err != nil {
		return nil, err
	}
	key := portKey{network, uint16(port)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.refuse[key]; err != nil {
		return nil, err
	}
	if n.open[key] != nil {
		return nil, errors.New("already open")
	}
	var ln net.Listener
	if network == "udp" {
		ln, err = listenFlows()
	} else {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	ln = &testListener{Listener: ln, net: n, key: key}
	n.open[key] = ln
	n.listened[key]++
	return ln, nil
}

type testListener struct {
	net.Listener
	net *testNet
	key portKey
}

func (l *testListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if t, ok := c.(*net.TCPConn); ok && l.net.opaque {
		return opaqueConn{t}, nil
	}
	return c, err
}

func (l *testListener) Close() error {
	l.net.mu.Lock()
	if l.net.open[l.key] == l {
		delete(l.net.open, l.key)
	}
	l.net.mu.Unlock()
	return l.Listener.Close()
}

// opaqueConn has what gonet.TCPConn has.
type opaqueConn struct{ c *net.TCPConn }

func (o opaqueConn) Read(p []byte) (int, error) { return o.c.Read(p) }

func (o opaqueConn) Write(p []byte) (int, error) { return o.c.Write(p) }

func (o opaqueConn) Close() error { return o.c.Close() }

func (o opaqueConn) CloseWrite() error { return o.c.CloseWrite() }

func (o opaqueConn) LocalAddr() net.Addr { return o.c.LocalAddr() }

func (o opaqueConn) RemoteAddr() net.Addr { return o.c.RemoteAddr() }

func (o opaqueConn) SetDeadline(t time.Time) error { return o.c.SetDeadline(t) }

func (o opaqueConn) SetReadDeadline(t time.Time) error { return o.c.SetReadDeadline(t) }

func (o opaqueConn) SetWriteDeadline(t time.Time) error { return o.c.SetWriteDeadline(t) }

// addr returns where a port is on loopback.
func (n *testNet) addr(t testing.TB, network string, port uint16) string {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	ln := n.open[portKey{network, port}]
	if ln == nil {
		t.Fatalf("%s port %d is not open", network, port)
	}
	return ln.Addr().String()
}

func (n *testNet) ports() map[portKey]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	open := map[portKey]bool{}
	for k := range n.open {
		open[k] = true
	}
	return open
}

func (n *testNet) timesListened(key portKey) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listened[key]
}

// fixture is an Edge on loopback that ends with the test.
type fixture struct {
	*Edge
	net *testNet
}

func start(t testing.TB, o Options, s *Snapshot) *fixture {
	t.Helper()
	n := newTestNet()
	f := &fixture{Edge: New(n, o), net: n}
	t.Cleanup(func() { f.stop(t) })
	f.apply(t, s)
	return f
}

func (f *fixture) apply(t testing.TB, s *Snapshot) {
	t.Helper()
	if err := f.Apply(s); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

func (f *fixture) stop(t testing.TB) int {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	cut, err := f.Shutdown(ctx)
	if err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	return cut
}

func (f *fixture) dial(t testing.TB, port uint16) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", f.net.addr(t, "tcp", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// refused connects to a port that resets the connection, at once or after a
// byte, and returns the error.
func (f *fixture) refused(t testing.TB, port uint16) error {
	t.Helper()
	c, err := net.Dial("tcp", f.net.addr(t, "tcp", port))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	c.Write([]byte("x"))
	_, err = io.ReadAll(c)
	return err
}

// dialTLS does a handshake for one name.
func (f *fixture) dialTLS(t testing.TB, name string) *tls.Conn {
	t.Helper()
	c := tls.Client(f.dial(t, 443), &tls.Config{RootCAs: ca.pool, ServerName: name})
	if err := c.Handshake(); err != nil {
		t.Fatalf("handshake for %s: %v", name, err)
	}
	return c
}

// client speaks to port 443 whatever the URL's host is.
func (f *fixture) client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	addr := f.net.addr(t, "tcp", 443)
	tr := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		TLSClientConfig:       &tls.Config{RootCAs: ca.pool},
		Protocols:             protocols,
		DisableCompression:    true,
		ExpectContinueTimeout: 10 * time.Second,
		MaxIdleConnsPerHost:   128,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// both runs a test over HTTP/1.1 and HTTP/2.
func both(t *testing.T, test func(t *testing.T, h2 bool)) {
	for _, h2 := range []bool{false, true} {
		name := "http1"
		if h2 {
			name = "http2"
		}
		t.Run(name, func(t *testing.T) { test(t, h2) })
	}
}

// web is a snapshot with one http expose per host, all with the same handler.
func web(t testing.TB, h http.HandlerFunc, hosts ...string) *Snapshot {
	t.Helper()
	return webAt(t, []string{serveHTTP(t, h)}, hosts...)
}

func webAt(t testing.TB, targets []string, hosts ...string) *Snapshot {
	t.Helper()
	s := &Snapshot{HTTPS: &HTTPS{Hosts: map[string]Host{}, Certificates: map[string]*tls.Certificate{}}}
	for _, h := range hosts {
		s.HTTPS.Hosts[h] = Host{Expose: "app", Targets: targets}
		s.HTTPS.Certificates[h] = ca.issue(t, foldName(h))
	}
	return s
}

// serveHTTP starts a backend and returns its address.
func serveHTTP(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// serveTCP starts a backend that handles each connection, and returns its address.
func serveTCP(t testing.TB, handle func(c *net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				handle(c.(*net.TCPConn))
			})
		}
	})
	return ln.Addr().String()
}

func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.CloseWrite()
}

// deadAddr returns an address that refuses connections.
func deadAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// eventually polls a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		<-tick.C
	}
}

func dialerFunc(dial func() (net.Conn, error)) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) { return dial() }
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// stuckAddr returns the address of a backend that takes connections and never reads.
func stuckAddr(t testing.TB) string {
	done := make(chan struct{})
	addr := serveTCP(t, func(*net.TCPConn) { <-done })
	t.Cleanup(func() { close(done) })
	return addr
}

// serveHTTPCounting counts the connections that are open.
func serveHTTPCounting(t testing.TB, open *atomic.Int64, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
