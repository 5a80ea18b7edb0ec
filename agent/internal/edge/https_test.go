package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func hello(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello from "+r.Host) }

func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return res, string(b)
}

func TestHostsAreRoutedByName(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		a := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "A "+r.Host) })
		b := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "B "+r.Host) })
		s := webAt(t, []string{a}, "a.test", "B.Test.")
		s.HTTPS.Hosts["B.Test."] = Host{Expose: "b", Targets: []string{b}}
		f := start(t, Options{}, s)
		for url, want := range map[string]string{
			"https://a.test/": "A a.test", "https://b.test/": "B b.test", "https://a.test:443/": "A a.test:443", "https://a.test:8443/": "A a.test:8443",
		} {
			res, body := get(t, f.client(t, h2), url)
			if res.StatusCode != 200 || body != want || res.ProtoMajor != map[bool]int{false: 1, true: 2}[h2] {
				t.Errorf("%s: %s %d %q, want %q", url, res.Proto, res.StatusCode, body, want)
			}
		}
		if got := f.Serving(); fmt.Sprint(got.Hosts) != "[a.test b.test]" {
			t.Errorf("serving %v", got)
		}
	})
}

// TestUnknownNamesGetAnAlert: no certificate leaves for a name that is not ours (X5).
func TestUnknownNamesGetAnAlert(t *testing.T) {
	s := web(t, hello, "a.test")
	s.HTTPS.Certificates["*.wild.test"] = ca.issue(t, "*.wild.test")
	f := start(t, Options{}, s)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, name := range []string{"", "other.test", "test", "x.a.test", "a.b.wild.test", "wild.test"} {
			wire := &recorder{Conn: f.dial(t, 443)}
			c := tls.Client(wire, &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
			err := c.Handshake()
			// One record: alert, fatal, unrecognized_name (RFC 8446 section 6, RFC 6066 section 3).
			if want := "\x15\x03\x03\x00\x02\x02\x70"; err == nil || string(wire.read) != want {
				t.Errorf("%q: %v, on the wire %x", name, err, wire.read)
			}
		}
	}
	for _, name := range []string{"A.TEST", "x.wild.test"} {
		f.dialTLS(t, name)
	}
}

// recorder keeps what was read.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

func TestOldTLSIsRefused(t *testing.T) {
	f := start(t, Options{}, web(t, hello, "a.test"))
	c := tls.Client(f.dial(t, 443), &tls.Config{ServerName: "a.test", RootCAs: ca.pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if err := c.Handshake(); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
}

// raw sends one HTTP/1.1 request as it is written and returns the response.
func raw(t *testing.T, f *fixture, name, request string) (*http.Response, string) {
	t.Helper()
	c := f.dialTLS(t, name)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res, string(b)
}

// TestRequestTargets: what the request line and Host may say (X4).
func TestRequestTargets(t *testing.T) {
	var asked []string
	f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host+" "+r.RequestURI)
		w.Write([]byte("ok"))
	}, "a.test", "b.test"))
	for _, tc := range []struct {
		line, host string
		status     int
		asked      string
	}{
		{"GET / HTTP/1.1", "a.test", 200, "a.test /"},
		{"GET / HTTP/1.1", "A.TEST.", 200, "A.TEST. /"},
		{"GET / HTTP/1.1", "a.test:443", 200, "a.test:443 /"},
		{"GET //x//y?a=1;b&&%zz HTTP/1.1", "a.test", 200, "a.test //x//y?a=1;b&&%zz"},
		{"GET /a%2Fb/../c HTTP/1.1", "a.test", 200, "a.test /a%2Fb/../c"},
		{"GET /? HTTP/1.1", "a.test", 200, "a.test /?"},
		{"OPTIONS / HTTP/1.1", "a.test", 200, "a.test /"},
		{"GET https://a.test/abs HTTP/1.1", "a.test", 200, "a.test /abs"},
		{"GET https://b.test/abs HTTP/1.1", "a.test", 421, ""},
		{"GET http://a.test/abs HTTP/1.1", "a.test", 421, ""},
		{"GET / HTTP/1.1", "b.test", 421, ""},
		{"GET / HTTP/1.1", "other.test", 421, ""},
		{"GET / HTTP/1.1", "", 421, ""},
		{"GET / HTTP/1.1", "a.test:80:80", 421, ""},
		{"GET / HTTP/1.1", "a.test:x", 421, ""},
		{"GET / HTTP/1.1", "user@a.test", 400, ""},
		{"GET / HTTP/1.1", "[a.test]", 421, ""},
		{"OPTIONS * HTTP/1.1", "a.test", 400, ""},
		{"GET * HTTP/1.1", "a.test", 400, ""},
		{"CONNECT a.test:443 HTTP/1.1", "a.test", 501, ""},
		{"CONNECT /x HTTP/1.1", "a.test", 501, ""},
		{"GET x HTTP/1.1", "a.test", 400, ""},
	} {
		asked = nil
		res, _ := raw(t, f, "a.test", tc.line+"\r\nHost: "+tc.host+"\r\n\r\n")
		want := "[" + tc.asked + "]"
		if res.StatusCode != tc.status || fmt.Sprint(asked) != want {
			t.Errorf("%s, Host %q: %d, backend saw %v; want %d, %s", tc.line, tc.host, res.StatusCode, asked, tc.status, want)
		}
	}
}

// TestMisdirectedOverHTTP2: browsers share a connection between names of one certificate.
func TestMisdirectedOverHTTP2(t *testing.T) {
	s := web(t, hello, "a.test", "b.test")
	s.HTTPS.Certificates["a.test"] = ca.issue(t, "a.test", "b.test")
	f := start(t, Options{}, s)
	r, _ := http.NewRequest("GET", "https://a.test/", nil)
	r.Host = "b.test"
	res, err := f.client(t, true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusMisdirectedRequest || res.ProtoMajor != 2 {
		t.Errorf("%s %d", res.Proto, res.StatusCode)
	}
}

// TestNamesWithoutRoute checks both answers of X5.
func TestNamesWithoutRoute(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := web(t, hello, "a.test")
		s.HTTPS.Certificates["base.test"] = ca.issue(t, "base.test")
		f := start(t, Options{}, s)
		c := f.client(t, h2)
		res, _ := get(t, c, "https://base.test//x/%2F?q=1;2")
		if l := res.Header.Get("Location"); res.StatusCode != 308 || l != "https://a.test//x/%2F?q=1;2" {
			t.Errorf("one host: %d to %q", res.StatusCode, l)
		}
		res, err := c.Post("https://base.test/", "text/plain", strings.NewReader("body"))
		if err != nil || res.StatusCode != 308 {
			t.Errorf("POST: %v, %v", res, err)
		} else {
			res.Body.Close()
		}

		two := web(t, hello, "b.test", "a.test")
		two.HTTPS.Certificates["base.test"] = s.HTTPS.Certificates["base.test"]
		two.HTTPS.Hosts["nocert.test"] = Host{Expose: "x", Targets: []string{"127.0.0.1:1"}}
		f.apply(t, two)
		res, body := get(t, c, "https://base.test/")
		if want := "Nothing is served under this name. These are:\nhttps://a.test/\nhttps://b.test/\n"; res.StatusCode != 404 || body != want ||
			res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("two hosts: %d %q %v", res.StatusCode, body, res.Header)
		}

		none := &Snapshot{HTTPS: &HTTPS{Certificates: map[string]*tls.Certificate{"base.test": s.HTTPS.Certificates["base.test"]}}}
		f.apply(t, none)
		if res, body := get(t, c, "https://base.test/"); res.StatusCode != 404 || strings.Contains(body, "https://") {
			t.Errorf("no host: %d %q", res.StatusCode, body)
		}
	})
}

// TestWithdrawnHost: a host that lost its certificate stops, on connections
// that are open too, and nothing else does (C4).
func TestWithdrawnHost(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		s := web(t, hello, "a.test", "b.test")
		f := start(t, Options{}, s)
		c := f.client(t, h2)
		get(t, c, "https://a.test/")
		get(t, c, "https://b.test/")
		less := *s.HTTPS
		less.Certificates = map[string]*tls.Certificate{"b.test": s.HTTPS.Certificates["b.test"]}
		f.apply(t, &Snapshot{HTTPS: &less})
		if res, _ := get(t, c, "https://a.test/"); res.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("withdrawn host on an open connection: %d", res.StatusCode)
		}
		if _, err := f.client(t, h2).Get("https://a.test/"); err == nil {
			t.Error("withdrawn host on a new connection was served")
		}
		if res, _ := get(t, c, "https://b.test/"); res.StatusCode != 200 {
			t.Errorf("the other host: %d", res.StatusCode)
		}
		if got := fmt.Sprint(f.Serving().Hosts); got != "[b.test]" {
			t.Errorf("serving %s", got)
		}
	})
}

// TestResumption: a session is resumed under the same certificate, never under
// a newer one and never under another name.
func TestResumption(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s := web(t, hello, "a.test", "b.test")
		f := start(t, Options{}, s)
		cache := &sharedSession{}
		handshake := func(name string) tls.ConnectionState {
			t.Helper()
			c := tls.Client(f.dial(t, 443), &tls.Config{
				ServerName: name, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"},
				MinVersion: version, MaxVersion: version, ClientSessionCache: cache,
			})
			// A request and its response, so that the ticket has been read.
			fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				t.Fatal(err)
			}
			return c.ConnectionState()
		}
		handshake("a.test")
		if !handshake("a.test").DidResume {
			t.Errorf("%x: the same name and certificate were not resumed", version)
		}
		f.apply(t, s)
		if !handshake("a.test").DidResume {
			t.Errorf("%x: not resumed after an Apply that changed nothing", version)
		}
		if handshake("b.test").DidResume {
			t.Errorf("%x: resumed under another name", version)
		}
		handshake("a.test")
		fresh := webAt(t, s.HTTPS.Hosts["a.test"].Targets, "a.test", "b.test")
		f.apply(t, fresh)
		cs := handshake("a.test")
		if cs.DidResume || cs.PeerCertificates[0].SerialNumber.Cmp(fresh.HTTPS.Certificates["a.test"].Leaf.SerialNumber) != 0 {
			t.Errorf("%x: resumed %v, serial %v", version, cs.DidResume, cs.PeerCertificates[0].SerialNumber)
		}
	}
}

// sharedSession gives its one session to every name, which an honest client doesn't.
type sharedSession struct{ s *tls.ClientSessionState }

func (c *sharedSession) Get(string) (*tls.ClientSessionState, bool) { return c.s, c.s != nil }
func (c *sharedSession) Put(_ string, s *tls.ClientSessionState)    { c.s = s }

func TestRedirectPort(t *testing.T) {
	s := web(t, hello, "a.test")
	s.HTTPS.Certificates["base.test"] = ca.issue(t, "base.test")
	s.RedirectHTTP = true
	f := start(t, Options{}, s)
	for _, tc := range []struct {
		line, host string
		status     int
		location   string
	}{
		{"GET / HTTP/1.1", "a.test", 308, "https://a.test/"},
		{"GET //p?q=%20;x HTTP/1.1", "A.test:80", 308, "https://a.test//p?q=%20;x"},
		{"POST /p HTTP/1.1", "base.test", 308, "https://base.test/p"},
		{"GET http://a.test/p HTTP/1.1", "a.test", 308, "https://a.test/p"},
		{"GET / HTTP/1.1", "evil.test", 404, ""},
		{"GET / HTTP/1.1", "", 404, ""},
		{"CONNECT a.test:443 HTTP/1.1", "a.test", 400, ""},
		{"OPTIONS * HTTP/1.1", "a.test", 400, ""},
	} {
		c := f.dial(t, 80)
		fmt.Fprintf(c, "%s\r\nHost: %s\r\n\r\n", tc.line, tc.host)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != tc.status || res.Header.Get("Location") != tc.location {
			t.Errorf("%s, Host %q: %d to %q", tc.line, tc.host, res.StatusCode, res.Header.Get("Location"))
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	f := start(t, Options{}, web(t, hello, "a.test"))
	res, _ := raw(t, f, "a.test", "GET / HTTP/1.1\r\nHost: a.test\r\nX: "+strings.Repeat("x", maxHeaderBytes+8192)+"\r\n\r\n")
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
}
