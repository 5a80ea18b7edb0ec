package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRequestFields compares what a raw-socket backend sees with what a client
// sent: hop-by-hop fields and every spelling of ours are gone (X6, X10).
func TestRequestFields(t *testing.T) {
	var seen []string
	f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		for {
			line, err := br.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			seen = append(seen, strings.TrimSuffix(line, "\r\n"))
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: X-Secret\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: x\r\nX-Secret: 1\r\nX-Kept: 1\r\nUpgrade: h2c\r\n\r\n")
	})}, "a.test"))
	sent := []string{
		"tailscale_user_login: eve", "TAILSCALE-USER-LOGIN: eve", "Tailscale-User-Name: eve", "Tailscale-User-Profile-Pic: eve",
		"Tailscale_App-Capabilities: eve", "tailscale.user.login: eve", "tailscale~user!login: eve", "Tailscale-Anything-Else: eve",
		"X-Forwarded-For: 6.6.6.6", "x_forwarded_for: 6.6.6.6", "X-Forwarded-Host: evil", "X-FORWARDED_PROTO: http", "X-Forwarded-Prefix: /evil",
		"X-Forwarded-Port: 1", "Forwarded: for=6.6.6.6", "X-Real-Ip: 6.6.6.6", "x_real.ip: 6.6.6.6", "Proxy: evil",
		"Connection: close, X-Hop, X-Forwarded-For", "X-Hop: 1", "Keep-Alive: 1", "Proxy-Connection: keep-alive", "Proxy-Authorization: x",
		"TE: trailers, deflate", "Upgrade: h2c", "HTTP2-Settings: AAAA",
		// These stay.
		"Authorization: Bearer x", "Cookie: a=1", "X-Tailscale: 1", "Tailscaled: 1", "Tail: 1", "X-Forwarded: 1", "Accept-Encoding: br", "X-Multi: 1", "X-Multi: 2",
	}
	request := "GET /p HTTP/1.1\r\nHost: a.test\r\n" + strings.Join(sent, "\r\n") + "\r\n\r\n"
	res, _ := raw(t, f, "a.test", request)
	want := []string{
		"GET /p HTTP/1.1", "Host: a.test", "Accept-Encoding: br", "Authorization: Bearer x", "Cookie: a=1", "Tail: 1", "Tailscaled: 1", "Te: trailers",
		"X-Forwarded: 1", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: a.test", "X-Forwarded-Proto: https", "X-Multi: 1", "X-Multi: 2", "X-Tailscale: 1",
	}
	slices.Sort(want)
	slices.Sort(seen)
	if d := cmp.Diff(want, seen); d != "" {
		t.Errorf("backend saw (-want +got):\n%s", d)
	}
	res.Header.Del("Date")
	if d := cmp.Diff(http.Header{"Content-Length": {"0"}, "X-Kept": {"1"}}, res.Header); d != "" {
		t.Errorf("client saw (-want +got):\n%s", d)
	}
}

// TestSpoofedFieldsOverHTTP2 sends the same through HTTP/2.
func TestSpoofedFieldsOverHTTP2(t *testing.T) {
	seen := make(chan http.Header, 1)
	f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) { seen <- r.Header }, "a.test"))
	r, _ := http.NewRequest("GET", "https://a.test/", nil)
	r.Header = http.Header{
		"tailscale_user_login": {"eve"}, "Tailscale-User-Login": {"eve"}, "tailscale.user-login": {"eve"}, "x_forwarded_for": {"6.6.6.6"},
		"X-Forwarded-For": {"6.6.6.6", "7.7.7.7"}, "X-Kept": {"1"}, "User-Agent": {""},
	}
	res, err := f.client(t, true).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	want := http.Header{"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"a.test"}, "X-Forwarded-Proto": {"https"}, "X-Kept": {"1"}}
	if d := cmp.Diff(want, <-seen); d != "" {
		t.Errorf("backend saw (-want +got):\n%s", d)
	}
}

// TestNothingIsAdded: no guessed Content-Type, no User-Agent, HEAD and 304 as they are.
func TestNothingIsAdded(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			w.Header()["Date"] = []string{"today"}
			switch r.URL.Path {
			case "/304":
				w.Header().Set("Etag", "x")
				w.WriteHeader(http.StatusNotModified)
			case "/204":
				w.WriteHeader(http.StatusNoContent)
			default:
				w.Header().Set("Content-Length", "15")
				io.WriteString(w, "<html>hi</html>")
			}
		}, "a.test"))
		for _, tc := range []struct {
			method, path string
			status       int
			want         http.Header
		}{
			{"GET", "/", 200, http.Header{"Content-Length": {"15"}, "Date": {"today"}}},
			{"HEAD", "/", 200, http.Header{"Content-Length": {"15"}, "Date": {"today"}}},
			{"GET", "/304", 304, http.Header{"Etag": {"x"}, "Date": {"today"}}},
			{"GET", "/204", 204, http.Header{"Date": {"today"}}},
		} {
			r, _ := http.NewRequest(tc.method, "https://a.test"+tc.path, nil)
			res, err := f.client(t, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if d := cmp.Diff(tc.want, res.Header); d != "" || res.StatusCode != tc.status {
				t.Errorf("%s %s: %d (-want +got):\n%s", tc.method, tc.path, res.StatusCode, d)
			}
		}
	})
}

// FuzzOurs compares with what a CGI-like interface makes of a field name.
func FuzzOurs(f *testing.F) {
	for _, key := range []string{"", "Tailscale-User-Login", "tailscale_user_login", "TAILSCALE.X", "Tailscale", "X-Forwarded_For", "x-real-ip", "Forwarded", "Proxy", "Proxy-Status"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		folded := strings.Map(func(r rune) rune {
			switch {
			case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
				return r
			case 'A' <= r && r <= 'Z':
				return r - 'A' + 'a'
			}
			return '_'
		}, key)
		if len(folded) != len(key) {
			return // not ASCII, and so not a field name
		}
		want := strings.HasPrefix(folded, "tailscale_") || strings.HasPrefix(folded, "x_forwarded_") ||
			folded == "forwarded" || folded == "x_real_ip" || folded == "proxy"
		if got := ours(key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	})
}
