package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

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

// load is traffic that goes on until stop.
type load struct {
	t     *testing.T
	stop  chan struct{}
	wg    sync.WaitGroup
	count atomic.Int64 // rounds that went well
}

// repeat does one thing again and again, which must never go wrong.
func (l *load) repeat(name string, once func() error) {
	l.wg.Go(func() {
		for {
			select {
			case <-l.stop:
				return
			default:
			}
			if err := once(); err != nil {
				l.t.Errorf("%s: %v", name, err)
				return
			}
			l.count.Add(1)
		}
	})
}

func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

// streams puts load on everything that is not a request.
func (l *load) streams(f *fixture, port uint16, socketHost string) {
	t := l.t
	long, socket, flow := f.dial(t, port), f.dialWebSocket(t, socketHost), f.dialUDP(t)
	l.repeat("open stream", func() error { return pingPong(long) })
	l.repeat("new streams", func() error {
		c := f.dial(t, port)
		defer c.Close()
		return pingPong(c)
	})
	l.repeat("websocket", func() error {
		if err := socket.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
			return err
		}
		_, _, err := socket.Read(t.Context())
		return err
	})
	l.repeat("flow", func() error {
		if !ask(flow, []byte("x"), 5*time.Second) {
			return errors.New("datagram lost")
		}
		return nil
	})
}

// longRequest keeps one request open, and sends a byte back and forth.
func (l *load) longRequest(f *fixture, host string, h2 bool) {
	t := l.t
	pr, pw := io.Pipe()
	t.Cleanup(func() { pw.Close() })
	c := f.client(t, h2)
	c.Timeout = 0
	go pw.Write([]byte("x"))
	res, err := c.Post("https://"+host+"/", "text/plain", pr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	l.repeat(fmt.Sprintf("long request to %s, HTTP/2 %v", host, h2), func() error {
		go pw.Write([]byte("x"))
		_, err := io.ReadFull(res.Body, make([]byte, 1))
		return err
	})
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
	l := &load{t: t, stop: make(chan struct{})}
	l.streams(f, 5432, "ws.test")
	for _, h2 := range []bool{false, true} {
		for _, host := range []string{"a.test", "changing.test"} {
			c := f.client(t, h2)
			l.repeat(fmt.Sprintf("requests to %s, HTTP/2 %v", host, h2), func() error { return post(c, "https://"+host+"/", "body") })
			l.longRequest(f, host, h2)
		}
	}
	unchanged := f.current.Load().web.hosts["a.test"].backend
	for i := range 200 {
		next := *s
		next.HTTPS = &HTTPS{Hosts: maps.Clone(s.HTTPS.Hosts), Certificates: s.HTTPS.Certificates}
		next.HTTPS.Hosts["changing.test"] = Host{Expose: "changing", Targets: []string{app[i%2], app[(i+1)%2]}[:1+i%3/2]}
		next.TCP = map[uint16]Stream{5432: s.TCP[5432], uint16(6000 + i%5): {Expose: "other", Targets: []string{stream}}}
		f.apply(t, &next)
		before := l.count.Load()
		eventually(t, "some work in between", func() bool { return l.count.Load() > before+2 || t.Failed() })
		if t.Failed() {
			break
		}
	}
	l.end()
	for _, key := range []portKey{{"tcp", 443}, {"tcp", 80}, {"tcp", 5432}, {"udp", 53}} {
		if n := f.net.timesListened(key); n != 1 {
			t.Errorf("%v was opened %d times", key, n)
		}
	}
	if f.current.Load().web.hosts["a.test"].backend != unchanged {
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
