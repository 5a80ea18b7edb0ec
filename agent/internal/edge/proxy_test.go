package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestServerSentEvents: each event arrives before the next one is sent (X4).
func TestServerSentEvents(t *testing.T) {
	for _, contentType := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "application/grpc+proto", "application/json", ""} {
		both(t, func(t *testing.T, h2 bool) {
			next := make(chan struct{})
			f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = []string{contentType}
				rc := http.NewResponseController(w)
				rc.Flush() // the header alone
				for i := range 5 {
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
					fmt.Fprintf(w, "data: %d\n\n", i)
					rc.Flush()
				}
			}, "a.test"))
			res, err := f.client(t, h2).Get("https://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			br := bufio.NewReader(res.Body)
			for i := range 5 {
				next <- struct{}{}
				line, err := br.ReadString('\n')
				if want := fmt.Sprintf("data: %d\n", i); line != want || err != nil {
					t.Fatalf("%q, %v; want %q", line, err, want)
				}
				br.ReadString('\n')
			}
		})
	}
}

// TestKnownLengthIsNotHeldBack: a slow body with Content-Length arrives as it comes.
func TestKnownLengthIsNotHeldBack(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		next := make(chan struct{})
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "4")
			rc := http.NewResponseController(w)
			rc.Flush()
			for range 4 {
				<-next
				w.Write([]byte("x"))
				rc.Flush()
			}
		}, "a.test"))
		res, err := f.client(t, h2).Get("https://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for range 4 {
			next <- struct{}{}
			if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTrailers(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		var got http.Header
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Announced")
			io.Copy(w, r.Body)
			got = r.Trailer
			w.Header().Set("X-Announced", "1")
			w.Header().Set(http.TrailerPrefix+"X-Surprise", "2")
		}, "a.test"))
		r, _ := http.NewRequest("POST", "https://a.test/", io.NopCloser(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Up": {"3"}, "Tailscale_user-Login": {"eve"}}
		res, err := f.client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(b) != "body" {
			t.Fatalf("%q, %v", b, err)
		}
		if d := cmp.Diff(http.Header{"X-Announced": {"1"}, "X-Surprise": {"2"}}, res.Trailer); d != "" {
			t.Errorf("response trailers (-want +got):\n%s", d)
		}
		if d := cmp.Diff(http.Header{"X-Up": {"3"}}, got); d != "" {
			t.Errorf("request trailers (-want +got):\n%s", d)
		}
	})
}

// TestTrailersWithoutBody: how gRPC reports an error.
func TestTrailersWithoutBody(t *testing.T) {
	f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		w.Header().Set("Grpc-Status", "5")
	}, "a.test"))
	res, _ := get(t, f.client(t, true), "https://a.test/")
	if res.Trailer.Get("Grpc-Status") != "5" {
		t.Errorf("trailers %v", res.Trailer)
	}
}

func TestEarlyHints(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Link", "</b.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Write([]byte("ok"))
		}, "a.test"))
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, http.Header(h)))
			return nil
		}})
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://a.test/", nil)
		res, err := f.client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		want := []string{"103 map[Link:[</a.css>; rel=preload]]", "103 map[Link:[</b.css>; rel=preload]]"}
		if d := cmp.Diff(want, hints); d != "" || res.StatusCode != 200 || res.Header.Get("Link") != "" {
			t.Errorf("%d %v, hints (-want +got):\n%s", res.StatusCode, res.Header, d)
		}
	})
}

// TestExpectContinue: the client's body starts when the backend asks for it,
// and not at all when the backend refuses. Over HTTP/2 net/http doesn't tell
// that the client waits, so there the body is asked for at once.
func TestExpectContinue(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/refuse" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			io.Copy(w, r.Body)
		}, "a.test"))
		for path, want := range map[string]string{"/take": "body", "/refuse": ""} {
			var asked atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked.Add(1) }})
			body := &countingReader{r: strings.NewReader("body")}
			r, _ := http.NewRequestWithContext(ctx, "POST", "https://a.test"+path, body)
			r.ContentLength = 4
			r.Header.Set("Expect", "100-continue")
			res, err := f.client(t, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(res.Body)
			res.Body.Close()
			sent := path == "/take" || h2
			if string(b) != want || (asked.Load() == 1) != sent || (body.n.Load() > 0) != sent {
				t.Errorf("%s: %d %q, asked %d times, %d bytes sent", path, res.StatusCode, b, asked.Load(), body.n.Load())
			}
		}
	})
}

type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestLargeBodies streams 64 MiB up and down at once.
func TestLargeBodies(t *testing.T) {
	const size = 64 << 20
	both(t, func(t *testing.T, h2 bool) {
		for _, length := range []int64{-1, size} {
			f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).EnableFullDuplex()
				if r.ContentLength >= 0 {
					w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
				}
				io.Copy(w, r.Body)
			}, "a.test"))
			block := make([]byte, 1<<20)
			rand.Read(block)
			sent, got := sha256.New(), sha256.New()
			body := io.TeeReader(io.LimitReader(&repeat{block: block}, size), sent)
			r, _ := http.NewRequest("POST", "https://a.test/", body)
			r.ContentLength = length
			res, err := f.client(t, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(got, res.Body)
			res.Body.Close()
			if err != nil || n != size || res.ContentLength != length || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
				t.Errorf("length %d: %d bytes, Content-Length %d, %v, or the digests differ", length, n, res.ContentLength, err)
			}
		}
	})
}

// repeat yields a block again and again, shifted so that no two megabytes are equal.
type repeat struct {
	block []byte
	pos   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.block[r.pos%len(r.block):])
	r.pos += n + 1
	return n, nil
}

// TestClientLeaving ends the backend's request.
func TestClientLeaving(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		started, left := make(chan struct{}, 2), make(chan struct{}, 2)
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/midway" {
				w.Write([]byte("some"))
				http.NewResponseController(w).Flush()
			}
			started <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		}, "a.test"))
		for _, path := range []string{"/before", "/midway"} {
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := http.NewRequestWithContext(ctx, "GET", "https://a.test"+path, nil)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if res, err := f.client(t, h2).Do(r); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}()
			<-started
			cancel()
			<-ended
			select {
			case <-left:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: the backend's request goes on", path)
			}
		}
	})
}

// TestBackendBreakingOff: a body that is cut short must not look complete.
func TestBackendBreakingOff(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for path, head := range map[string]string{
			"/chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
			"/length":  "Content-Length: 100\r\n\r\nhello",
		} {
			f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
			})}, "a.test"))
			res, err := f.client(t, h2).Get("https://a.test" + path)
			if err != nil {
				continue
			}
			b, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil {
				t.Errorf("%s: a clean end after %q", path, b)
			}
		}
	})
}

// TestNoResponse: what the client is told, which names no address.
func TestNoResponse(t *testing.T) {
	var log bytes.Buffer
	for name, tc := range map[string]struct {
		targets []string
		want    string
	}{
		"down":     {[]string{deadAddr(t), deadAddr(t)}, "The backend of \"app\" can't be reached.\n"},
		"none":     {nil, "The backend of \"app\" can't be reached.\n"},
		"hangs up": {[]string{serveTCP(t, func(c *net.TCPConn) { io.ReadFull(c, make([]byte, 1)) })}, "The backend of \"app\" broke off.\n"},
		"nonsense": {[]string{serveTCP(t, func(c *net.TCPConn) { io.ReadFull(c, make([]byte, 1)); c.Write([]byte("SSH-2.0\r\n\r\n")) })}, "The backend of \"app\" broke off.\n"},
		"unasked": {[]string{serveTCP(t, func(c *net.TCPConn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			io.Copy(io.Discard, c)
		})}, "The backend of \"app\" broke off.\n"},
	} {
		log.Reset()
		f := start(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, webAt(t, tc.targets, "a.test"))
		res, body := get(t, f.client(t, false), "https://a.test/")
		if res.StatusCode != http.StatusBadGateway || body != tc.want || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %q", name, res.StatusCode, body)
		}
		for _, target := range tc.targets {
			if name == "down" && !strings.Contains(log.String(), target) {
				t.Errorf("%s: the log doesn't have %s: %s", name, target, log.String())
			}
		}
	}
}

// TestNextHTTPTarget: a request with a body goes to the next target when a
// connection can't be made, and nowhere else when it was made.
func TestNextHTTPTarget(t *testing.T) {
	var hits atomic.Int64
	good := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	bad := serveTCP(t, func(c *net.TCPConn) { hits.Add(1); http.ReadRequest(bufio.NewReader(c)) })
	f := start(t, Options{}, webAt(t, []string{deadAddr(t), good}, "a.test"))
	c := f.client(t, false)
	post := func() (*http.Response, string) {
		res, err := c.Post("https://a.test/", "text/plain", io.NopCloser(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return res, string(b)
	}
	for range 4 {
		if res, b := post(); res.StatusCode != 200 || b != "body" {
			t.Fatalf("%d %q", res.StatusCode, b)
		}
	}
	f.apply(t, webAt(t, []string{bad, good}, "a.test"))
	c = f.client(t, false)
	var codes []int
	for range 2 {
		res, _ := post()
		codes = append(codes, res.StatusCode)
	}
	if d := cmp.Diff([]int{502, 200}, codes); d != "" || hits.Load() != 1 {
		t.Errorf("%d attempts, answers (-want +got):\n%s", hits.Load(), d)
	}
}

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

// TestEarlyResponse: a backend that refuses an upload halfway. The client
// waits for the answer before it goes on.
func TestEarlyResponse(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			io.ReadFull(r.Body, make([]byte, 4))
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			http.NewResponseController(w).Flush()
		}, "a.test"))
		pr, pw := io.Pipe()
		r, _ := http.NewRequest("POST", "https://a.test/", pr)
		go pw.Write([]byte("part"))
		defer pw.Close()
		res, err := f.client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

// TestDeadlineIsLiftedAfterTheHeader: the header has a deadline, the body none (tailscale/tailscale#8935).
func TestDeadlineIsLiftedAfterTheHeader(t *testing.T) {
	f := start(t, Options{}, nil)
	f.headerTimeout = 100 * time.Millisecond
	f.apply(t, web(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }, "a.test"))
	pr, pw := io.Pipe()
	go func() {
		for range 20 {
			pw.Write([]byte("x"))
			<-time.After(20 * time.Millisecond)
		}
		pw.Close()
	}()
	res, err := f.client(t, false).Post("https://a.test/", "text/plain", pr)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	c := f.dial(t, 443)
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a client that sends no header is not turned away")
	}
}

func TestRequestMetrics(t *testing.T) {
	type record struct {
		Expose         string
		Status         int
		Received, Sent int64
	}
	got := make(chan record, 1)
	f := start(t, Options{Metrics: Metrics{Request: func(expose string, status int, received, sent int64, took time.Duration) {
		if took <= 0 {
			t.Errorf("took %v", took)
		}
		got <- record{expose, status, received, sent}
	}}}, web(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "short and stout")
	}, "a.test"))
	res, err := f.client(t, true).Post("https://a.test/", "text/plain", strings.NewReader("tip me over"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if d := cmp.Diff(record{"app", http.StatusTeapot, 11, 15}, <-got); d != "" {
		t.Error(d)
	}
}
