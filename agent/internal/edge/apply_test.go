package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// TestListenErrors: a port that can't be opened is reported, leaves the others
// alone, and is tried again.
func TestListenErrors(t *testing.T) {
	cause := errors.New("port is taken")
	n := newTestNet()
	f := &fixture{Edge: New(n, Options{}), net: n}
	t.Cleanup(func() { f.stop(t) })
	n.refuse[portKey{"tcp", 1}] = cause
	n.refuse[portKey{"udp", 3}] = cause
	target := serveTCP(t, echo)
	s := &Snapshot{
		TCP: map[uint16]Stream{1: {Expose: "a", Targets: []string{target}}, 2: {Expose: "b", Targets: []string{target}}},
		UDP: map[uint16]Datagram{3: {Expose: "c", Targets: []string{target}}},
	}
	for range 2 {
		err := f.Apply(s)
		var le *ListenError
		if !errors.Is(err, cause) || !errors.As(err, &le) || !strings.Contains(err.Error(), "listening on tcp port 1: port is taken") ||
			!strings.Contains(err.Error(), "listening on udp port 3: port is taken") {
			t.Errorf("Apply: %v", err)
		}
		if d := cmp.Diff([]Listener{{"tcp", 2}}, f.Serving().Listeners); d != "" {
			t.Error(d)
		}
	}
	clear(n.refuse)
	f.apply(t, s)
	if d := cmp.Diff([]Listener{{"tcp", 1}, {"tcp", 2}, {"udp", 3}}, f.Serving().Listeners); d != "" {
		t.Error(d)
	}
	if got := n.timesListened(portKey{"tcp", 2}); got != 1 {
		t.Errorf("the port that was open was opened %d times", got)
	}
}

// TestLostListener: one that is closed from underneath is not reported as
// serving, and comes back.
func TestLostListener(t *testing.T) {
	s := tcp(serveTCP(t, echo))
	f := start(t, Options{}, s)
	f.net.mu.Lock()
	ln := f.net.open[portKey{"tcp", 5432}]
	f.net.mu.Unlock()
	ln.Close()
	eventually(t, "loss noticed", func() bool { return len(f.Serving().Listeners) == 0 })
	f.apply(t, s)
	c := f.dial(t, 5432)
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestRefusedSnapshotChangesNothing (X17).
func TestRefusedSnapshotChangesNothing(t *testing.T) {
	good := tcp(serveTCP(t, echo))
	f := start(t, Options{}, good)
	before := f.current.Load()
	h := webAt(t, nil, "a.test").HTTPS
	for name, s := range map[string]*Snapshot{
		"443 twice": {TCP: map[uint16]Stream{443: {Expose: "x"}}, HTTPS: h},
		"80 twice":  {TCP: map[uint16]Stream{80: {Expose: "x"}}, HTTPS: h, RedirectHTTP: true},
		"PROXY v3":  {TCP: map[uint16]Stream{1: {Expose: "x", ProxyProtocol: "v3"}}},
	} {
		if err := f.Apply(s); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %v", name, err)
		}
		if f.current.Load() != before {
			t.Errorf("%s changed what is served", name)
		}
	}
}

// TestNoCertificateNoListener: never plain text, nor a port that can only refuse (C4).
func TestNoCertificateNoListener(t *testing.T) {
	s := web(t, hello, "a.test")
	s.HTTPS.Certificates["a.test"] = nil
	f := start(t, Options{}, s)
	if got := f.Serving(); len(got.Listeners)+len(got.Hosts) != 0 {
		t.Errorf("serving %+v", got)
	}
}

// TestRoleChange: port 443 from passthrough to HTTPS and back, with a stream
// and a request that go on (X13, X15).
func TestRoleChange(t *testing.T) {
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	https := web(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		io.WriteString(w, "finished")
	}, "a.test")
	pass := &Snapshot{TCP: map[uint16]Stream{443: {Expose: "gw", Targets: []string{serveTCP(t, echo)}}}}
	f := start(t, Options{}, pass)
	stream := f.dial(t, 443)
	ping := func() {
		t.Helper()
		stream.Write([]byte("x"))
		if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	f.apply(t, https)
	ping()
	result := make(chan string, 1)
	go func() {
		res, err := f.client(t, true).Get("https://a.test/")
		if err != nil {
			result <- err.Error()
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		result <- fmt.Sprint(string(b), err)
	}()
	<-asked
	f.apply(t, pass)
	ping()
	close(release)
	if got := <-result; got != "finished<nil>" {
		t.Errorf("the request that was running: %s", got)
	}
	ping()
	if n := f.net.timesListened(portKey{"tcp", 443}); n != 1 {
		t.Errorf("port 443 was opened %d times", n)
	}
	eventually(t, "HTTP connection closed", func() bool { return f.open.len() == 1 })
}

// TestOtherExposesAreNotTouched changes one expose 200 times while everything
// else is in use, the same host included: nothing is lost, nothing reset (X15).
func TestOtherExposesAreNotTouched(t *testing.T) {
	stream, ws := serveTCP(t, echo), serveHTTP(t, wsEcho)
	app := []string{serveHTTP(t, echoBody), serveHTTP(t, echoBody)}
	s := webAt(t, []string{app[0]}, "a.test", "changing.test", "ws.test")
	s.HTTPS.Hosts["ws.test"] = Host{Expose: "ws", Targets: []string{ws}}
	s.TCP = map[uint16]Stream{5432: {Expose: "db", Targets: []string{stream}}}
	s.UDP = map[uint16]Datagram{53: {Expose: "dns", Targets: []string{udpEcho(t)}}}
	s.RedirectHTTP = true
	f := start(t, Options{}, s)

	var count atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	worker := func(name string, once func() error) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := once(); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				count.Add(1)
			}
		})
	}
	long := f.dial(t, 5432)
	worker("open stream", func() error { return pingPong(long) })
	worker("new streams", func() error {
		c := f.dial(t, 5432)
		defer c.Close()
		return pingPong(c)
	})
	socket := f.dialWebSocket(t, "ws.test")
	worker("websocket", func() error {
		if err := socket.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
			return err
		}
		_, _, err := socket.Read(t.Context())
		return err
	})
	flow := f.dialUDP(t)
	worker("flow", func() error {
		if !ask(flow, []byte("x"), 5*time.Second) {
			return errors.New("datagram lost")
		}
		return nil
	})
	for _, h2 := range []bool{false, true} {
		for _, host := range []string{"a.test", "changing.test"} {
			c := f.client(t, h2)
			worker(fmt.Sprint("requests to ", host, ", HTTP/2 ", h2), func() error { return post(c, "https://"+host+"/", "body") })
		}
		pr, pw := io.Pipe()
		t.Cleanup(func() { pw.Close() })
		r, _ := http.NewRequest("POST", "https://changing.test/", pr)
		c := f.client(t, h2)
		c.Timeout = 0
		go pw.Write([]byte("x"))
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		worker(fmt.Sprint("long request to the host that changes, HTTP/2 ", h2), func() error {
			go pw.Write([]byte("x"))
			_, err := io.ReadFull(res.Body, make([]byte, 1))
			return err
		})
	}
	transport := f.current.Load().web.hosts["a.test"].backend
	for i := range 200 {
		next := *s
		h := *s.HTTPS
		next.HTTPS = &h
		h.Hosts = map[string]Host{"a.test": s.HTTPS.Hosts["a.test"], "ws.test": s.HTTPS.Hosts["ws.test"],
			"changing.test": {Expose: "changing", Targets: []string{app[i%2], app[(i+1)%2]}[:1+i%3/2]}}
		next.TCP = map[uint16]Stream{5432: s.TCP[5432], uint16(6000 + i%5): {Expose: "other", Targets: []string{stream}}}
		f.apply(t, &next)
		before := count.Load()
		eventually(t, "some work in between", func() bool { return count.Load() > before+2 || t.Failed() })
		if t.Failed() {
			break
		}
	}
	close(stop)
	wg.Wait()
	for _, key := range []portKey{{"tcp", 443}, {"tcp", 80}, {"tcp", 5432}, {"udp", 53}} {
		if n := f.net.timesListened(key); n != 1 {
			t.Errorf("%v was opened %d times", key, n)
		}
	}
	if f.current.Load().web.hosts["a.test"].backend != transport {
		t.Error("the transport of an unchanged host was replaced")
	}
}

// echoBody returns each piece of the body as it comes.
func echoBody(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	rc.EnableFullDuplex()
	buf := make([]byte, 1024)
	for {
		n, err := r.Body.Read(buf)
		w.Write(buf[:n])
		rc.Flush()
		if err != nil {
			return
		}
	}
}

func pingPong(c io.ReadWriter) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func post(c *http.Client, url, body string) error {
	res, err := c.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || string(b) != body {
		return fmt.Errorf("%d %q, %v", res.StatusCode, b, err)
	}
	return nil
}

// TestCertificateSwapUnderLoad: every handshake after Apply sees the new
// serial, and connections from before go on (C3).
func TestCertificateSwapUnderLoad(t *testing.T) {
	s := web(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }, "a.test")
	f := start(t, Options{}, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, h2 := range []bool{false, true} {
		var dials atomic.Int64
		c := f.client(t, h2)
		tr := c.Transport.(*http.Transport)
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}
		wg.Go(func() {
			for {
				select {
				case <-stop:
					if n := dials.Load(); n != 1 {
						t.Errorf("HTTP/2 %v: %d connections, want the first one alone", h2, n)
					}
					return
				default:
				}
				if err := post(c, "https://a.test/", "body"); err != nil {
					t.Errorf("HTTP/2 %v: %v", h2, err)
					return
				}
			}
		})
	}
	cache := tls.NewLRUClientSessionCache(8)
	for range 100 {
		cert := ca.issue(t, "a.test")
		next := &Snapshot{HTTPS: &HTTPS{Hosts: s.HTTPS.Hosts, Certificates: map[string]*tls.Certificate{"a.test": cert}}}
		f.apply(t, next)
		for range 2 {
			if got := serialSeen(t, f, cache); got.Cmp(cert.Leaf.SerialNumber) != 0 {
				t.Fatalf("handshake saw serial %v, want %v", got, cert.Leaf.SerialNumber)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func serialSeen(t *testing.T, f *fixture, cache tls.ClientSessionCache) *big.Int {
	t.Helper()
	c := tls.Client(f.dial(t, 443), &tls.Config{ServerName: "a.test", RootCAs: ca.pool, ClientSessionCache: cache})
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].SerialNumber
}

// TestStateWalk goes from any state to any other: exactly the wanted ports are
// open after each step, and nothing is left at the end.
func TestStateWalk(t *testing.T) {
	fds, routines := openFiles(t), runtime.NumGoroutine()
	n := newTestNet()
	f := &fixture{Edge: New(n, Options{}), net: n}
	target, datagrams := serveTCP(t, echo), udpEcho(t)
	fds, routines = openFiles(t), runtime.NumGoroutine()
	certs := map[string]*tls.Certificate{}
	for _, h := range []string{"a.test", "b.test", "c.test"} {
		certs[h] = ca.issue(t, h)
	}
	states := []*Snapshot{nil, {}}
	rnd := mrand.New(mrand.NewPCG(1, 2))
	for range 12 {
		states = append(states, randomSnapshot(rnd, certs, target, datagrams))
	}
	step := func(i int) {
		f.apply(t, states[i])
		want := wantedPorts(states[i])
		if d := cmp.Diff(want, n.ports(), cmp.AllowUnexported(portKey{})); d != "" {
			t.Fatalf("state %d, ports (-want +got):\n%s", i, d)
		}
		for _, l := range f.Serving().Listeners {
			delete(want, portKey{l.Network, l.Port})
		}
		if len(want) > 0 {
			t.Fatalf("state %d: not reported as serving: %v", i, want)
		}
		if states[i] != nil {
			for port := range states[i].TCP {
				c := f.dial(t, port)
				if err := pingPong(c); err != nil {
					t.Fatalf("state %d, port %d: %v", i, port, err)
				}
				c.Close()
			}
		}
		for _, h := range f.Serving().Hosts {
			f.dialTLS(t, h).Close()
		}
	}
	for i := range states {
		step(i)
	}
	for range 5 * len(states) {
		step(rnd.IntN(len(states)))
	}
	f.stop(t)
	if open := n.ports(); len(open) > 0 {
		t.Errorf("open after Shutdown: %v", open)
	}
	eventually(t, "goroutines back to the baseline", func() bool { return runtime.NumGoroutine() <= routines })
	// Spliced streams pool their pipes until a collection.
	eventually(t, "descriptors back to the baseline", func() bool { runtime.GC(); return openFiles(t) <= fds })
}

func randomSnapshot(rnd *mrand.Rand, certs map[string]*tls.Certificate, target, datagrams string) *Snapshot {
	s := &Snapshot{TCP: map[uint16]Stream{}, UDP: map[uint16]Datagram{}, RedirectHTTP: rnd.IntN(2) == 0}
	for _, port := range []uint16{22, 53, 80, 443, 5432} {
		switch rnd.IntN(3) {
		case 0:
			s.TCP[port] = Stream{Expose: "t", Targets: []string{target}}
		case 1:
			s.UDP[port] = Datagram{Expose: "u", Targets: []string{datagrams}}
		}
	}
	if rnd.IntN(3) > 0 {
		delete(s.TCP, 443)
		delete(s.TCP, 80)
		s.HTTPS = &HTTPS{Hosts: map[string]Host{}, Certificates: map[string]*tls.Certificate{}}
		for h, cert := range certs {
			if rnd.IntN(2) == 0 {
				s.HTTPS.Hosts[h] = Host{Expose: "h", Targets: []string{target}}
			}
			if rnd.IntN(2) == 0 {
				s.HTTPS.Certificates[h] = cert
			}
		}
	}
	return s
}

func wantedPorts(s *Snapshot) map[portKey]bool {
	want := map[portKey]bool{}
	if s == nil {
		return want
	}
	for port := range s.TCP {
		want[portKey{"tcp", port}] = true
	}
	for port := range s.UDP {
		want[portKey{"udp", port}] = true
	}
	if s.HTTPS != nil {
		if len(s.HTTPS.Certificates) > 0 {
			want[portKey{"tcp", 443}] = true
		}
		if s.RedirectHTTP {
			want[portKey{"tcp", 80}] = true
		}
	}
	return want
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestRetiredTransportKeepsNothing: connections to targets that are gone are
// closed, those in use as soon as they are free.
func TestRetiredTransportKeepsNothing(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	var open atomic.Int64
	backend := serveHTTPCounting(t, &open, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			asked <- struct{}{}
			<-release
		}
		io.WriteString(w, "ok")
	})
	f := start(t, Options{}, webAt(t, []string{backend}, "a.test"))
	c := f.client(t, true)
	get(t, c, "https://a.test/")
	done := make(chan string, 1)
	go func() { _, b := get(t, c, "https://a.test/slow"); done <- b }()
	<-asked
	f.apply(t, web(t, hello, "a.test"))
	close(release)
	if b := <-done; b != "ok" {
		t.Errorf("the running request got %q", b)
	}
	eventually(t, "connections to the former target closed", func() bool { return open.Load() == 0 })
	if _, b := get(t, c, "https://a.test/"); b != "hello from a.test" {
		t.Errorf("after the change: %q", b)
	}
}

// TestShutdownDrains: what runs finishes, what hangs is cut and counted.
func TestShutdownDrains(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		release, asked := make(chan struct{}), make(chan string, 4)
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				return
			}
			asked <- r.URL.Path
			if r.URL.Path == "/hangs" {
				<-r.Context().Done()
				return
			}
			<-release
			io.WriteString(w, "finished")
		}, "a.test"))
		idle := f.client(t, h2)
		silent := f.dial(t, 443) // asks nothing
		results := make(chan string, 2)
		for _, path := range []string{"/finishes", "/hangs"} {
			c := f.client(t, h2)
			go func() {
				res, err := c.Get("https://a.test" + path)
				if err != nil {
					results <- path + " broke off"
					return
				}
				defer res.Body.Close()
				b, _ := io.ReadAll(res.Body)
				results <- path + " " + string(b)
			}()
			<-asked
		}
		get(t, idle, "https://a.test/")
		eventually(t, "all connections known", func() bool { return f.open.len() == 4 })

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type end struct {
			cut int
			err error
		}
		ended := make(chan end, 1)
		go func() { cut, err := f.Shutdown(ctx); ended <- end{cut, err} }()
		if b, err := io.ReadAll(silent); err != nil && len(b) > 0 {
			t.Errorf("silent connection read %q, %v", b, err)
		}
		close(release)
		first := <-results
		eventually(t, "the hanging one is left", func() bool { return f.open.len() == 1 })
		if err := f.Apply(&Snapshot{}); !errors.Is(err, ErrShutdown) {
			t.Errorf("Apply after Shutdown: %v", err)
		}
		if got := f.Serving(); len(got.Listeners)+len(got.Hosts) > 0 {
			t.Errorf("serving %+v", got)
		}
		cancel()
		if got := <-ended; got.cut != 1 || got.err != nil {
			t.Errorf("Shutdown: %d cut, %v", got.cut, got.err)
		}
		got := []string{first, <-results}
		slices.Sort(got)
		if d := cmp.Diff([]string{"/finishes finished", "/hangs broke off"}, got); d != "" {
			t.Error(d)
		}
	})
}

// TestShutdownCutsStreams: streams and tunnels have no end of their own.
func TestShutdownCutsStreams(t *testing.T) {
	s := web(t, wsEcho, "a.test")
	// This backend reads nothing, so the upload is stuck in the middle.
	s.TCP = map[uint16]Stream{5432: {Expose: "db", Targets: []string{serveTCP(t, echo)}}, 9: {Expose: "stuck", Targets: []string{stuckAddr(t)}}}
	s.HTTPS.Hosts["stuck.test"] = Host{Expose: "stuck", Targets: s.TCP[9].Targets}
	s.HTTPS.Certificates["stuck.test"] = ca.issue(t, "stuck.test")
	f := start(t, Options{}, s)
	if err := pingPong(f.dial(t, 5432)); err != nil {
		t.Fatal(err)
	}
	f.dialWebSocket(t, "a.test")
	var wg sync.WaitGroup
	stuck := f.dial(t, 9)
	wg.Go(func() { io.Copy(stuck, zeros{}) })
	wg.Go(func() {
		if res, err := f.client(t, false).Post("https://stuck.test/", "", io.LimitReader(zeros{}, 1<<30)); err == nil {
			res.Body.Close()
		}
	})
	eventually(t, "all under way", func() bool {
		n := 0
		for _, o := range f.open.all() {
			if wc, ok := o.(*webConn); !ok || wc.used.Load() {
				n++
			}
		}
		return n == 4
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if cut, err := f.Shutdown(ctx); cut != 4 || err != nil {
		t.Errorf("Shutdown: %d cut, %v", cut, err)
	}
	wg.Wait()
	if cut, err := f.Shutdown(t.Context()); cut != 0 || err != nil {
		t.Errorf("second Shutdown: %d cut, %v", cut, err)
	}
}
