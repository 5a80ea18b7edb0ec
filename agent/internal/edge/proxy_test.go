package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
