package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const handshakeRequest = "GET /chat?x=1 HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nTailscale-User-Login: eve\r\n\r\n"

// acceptUpgrade is a backend's side of a handshake. extra follows the response in the same write.
func acceptUpgrade(t *testing.T, c *net.TCPConn, extra string) (*http.Request, *bufio.Reader) {
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil {
		t.Errorf("reading the handshake: %v", err)
		return nil, br
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nX-Kept: 1\r\n\r\n%s",
		base64.StdEncoding.EncodeToString(sum[:]), extra)
	return r, br
}

// openTunnel sends a handshake with early data behind it and reads the response.
func openTunnel(t *testing.T, f *fixture, early []byte) (*tls.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c := f.dialTLS(t, "a.test")
	if _, err := c.Write(append([]byte(handshakeRequest), early...)); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", res.StatusCode)
	}
	return c, br, res
}

func TestHandshakeFields(t *testing.T) {
	asked := make(chan *http.Request, 1)
	f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
		r, _ := acceptUpgrade(t, c, "")
		asked <- r
	})}, "a.test"))
	_, br, res := openTunnel(t, f, nil)
	io.ReadAll(br)
	seen := <-asked
	if seen.Host != "a.test" || seen.RequestURI != "/chat?x=1" || seen.Header.Get("Upgrade") != "websocket" || seen.Header.Get("Connection") != "Upgrade" ||
		seen.Header.Get("X-Forwarded-Proto") != "https" || seen.Header.Get("Tailscale-User-Login") != "" || seen.Header.Get("User-Agent") != "" {
		t.Errorf("backend saw %s %s %v", seen.Host, seen.RequestURI, seen.Header)
	}
	if res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || res.Header.Get("X-Kept") != "1" ||
		res.Header.Get("Upgrade") != "websocket" || res.Header.Get("Connection") != "Upgrade" {
		t.Errorf("client saw %v", res.Header)
	}
}

// TestTunnelIsByteExact sends random bytes both ways in random pieces, the
// first of them together with the handshake (golang/go#80875), and half-closes
// in both orders.
func TestTunnelIsByteExact(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := mrand.New(mrand.NewPCG(seed, 1))
			up, down := random(rnd, rnd.IntN(1<<20)), random(rnd, rnd.IntN(1<<20))
			earlyUp, earlyDown := min(len(up), rnd.IntN(9000)), min(len(down), rnd.IntN(9000))
			clientFirst := rnd.IntN(2) == 0
			atBackend := make(chan []byte, 1)
			f := start(t, Options{}, nil)
			f.net.opaque = seed%2 == 0
			f.apply(t, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
				_, br := acceptUpgrade(t, c, string(down[:earlyDown]))
				atBackend <- exchangeBytes(t, c, br, mrand.New(mrand.NewPCG(seed, 2)), down[earlyDown:], !clientFirst)
			})}, "a.test"))
			c, br, _ := openTunnel(t, f, up[:earlyUp])
			got := exchangeBytes(t, c, br, rnd, up[earlyUp:], clientFirst)
			if !bytes.Equal(got, down) {
				t.Errorf("client got %d bytes of %d, or others", len(got), len(down))
			}
			if b := <-atBackend; !bytes.Equal(b, up) {
				t.Errorf("backend got %d bytes of %d, or others", len(b), len(up))
			}
			eventually(t, "tunnel gone", func() bool { return f.open.len() == 0 })
		})
	}
}

func random(rnd *mrand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// exchangeBytes writes data in random pieces while it reads. first half-closes
// as soon as its data is written, the other one only after it has read all.
func exchangeBytes(t *testing.T, c interface {
	io.Writer
	CloseWrite() error
}, br *bufio.Reader, rnd *mrand.Rand, data []byte, first bool) []byte {
	written := make(chan struct{})
	go func() {
		defer close(written)
		for len(data) > 0 {
			n := min(len(data), 1+rnd.IntN(40_000))
			if _, err := c.Write(data[:n]); err != nil {
				t.Errorf("writing: %v", err)
				return
			}
			data = data[n:]
		}
		if first {
			c.CloseWrite()
		}
	}()
	got, err := io.ReadAll(br)
	if err != nil {
		t.Errorf("reading: %v", err)
	}
	<-written
	if !first {
		c.CloseWrite()
	}
	return got
}

// TestTunnelAborts: neither end takes a broken tunnel for a closed one.
func TestTunnelAborts(t *testing.T) {
	t.Run("backend", func(t *testing.T) {
		f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
			_, br := acceptUpgrade(t, c, "")
			br.ReadByte()
			c.SetLinger(0)
		})}, "a.test"))
		c, br, _ := openTunnel(t, f, []byte("x"))
		_ = c
		if b, err := io.ReadAll(br); err == nil {
			t.Errorf("client read %q and a clean end", b)
		}
	})
	t.Run("client", func(t *testing.T) {
		got := make(chan error, 1)
		f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
			_, br := acceptUpgrade(t, c, "")
			_, err := io.ReadAll(br)
			got <- err
		})}, "a.test"))
		c, _, _ := openTunnel(t, f, nil)
		c.NetConn().(*net.TCPConn).SetLinger(0)
		c.NetConn().Close()
		if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("backend read %v; want a reset", err)
		}
	})
	t.Run("client before the answer", func(t *testing.T) {
		asked, got := make(chan struct{}), make(chan error, 1)
		f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
			br := bufio.NewReader(c)
			http.ReadRequest(br)
			close(asked)
			_, err := io.ReadAll(br)
			got <- err
		})}, "a.test"))
		c := f.dialTLS(t, "a.test")
		io.WriteString(c, handshakeRequest)
		<-asked
		c.Close()
		select {
		case <-got:
		case <-time.After(10 * time.Second):
			t.Error("the backend still waits")
		}
	})
}

// TestRefusedUpgrades: only websocket is tunnelled (golang/go#80416).
func TestRefusedUpgrades(t *testing.T) {
	reached := make(chan string, 16)
	f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		if r, err := http.ReadRequest(br); err == nil {
			reached <- r.Header.Get("Upgrade")
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})}, "a.test"))
	for _, tc := range []struct {
		line, fields string
		status       int
		reaches      bool
	}{
		{"GET / HTTP/1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", 501, false},
		{"GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: H2C\r\n", 501, false},
		{"GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket, h2c\r\n", 501, false},
		{"GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", 501, false},
		{"GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: TLS/1.2\r\n", 501, false},
		{"POST / HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 3\r\n", 400, false},
		{"GET / HTTP/1.1", "Connection: upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n", 400, false},
		{"GET / HTTP/1.1", "Upgrade: h2c\r\n", 200, true},
		{"GET / HTTP/1.1", "Connection: upgrade\r\n", 200, true},
		{"GET / HTTP/1.0", "Connection: upgrade\r\nUpgrade: websocket\r\n", 200, true},
	} {
		res, _ := raw(t, f, "a.test", tc.line+"\r\nHost: a.test\r\n"+tc.fields+"\r\n")
		if res.StatusCode != tc.status {
			t.Errorf("%s, %q: %d, want %d", tc.line, tc.fields, res.StatusCode, tc.status)
		}
		select {
		case up := <-reached:
			if !tc.reaches || up != "" {
				t.Errorf("%s, %q: the backend was asked to upgrade to %q", tc.line, tc.fields, up)
			}
		default:
			if tc.reaches {
				t.Errorf("%s, %q: the backend was not reached", tc.line, tc.fields)
			}
		}
	}
}

// TestBackendRefusesTheUpgrade: its answer is passed on, a wrong protocol is not.
func TestBackendRefusesTheUpgrade(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nX-Why: not you\r\n\r\nno":                        "403 no not you",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":                      "200 ok ",
		"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n": "103  ",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nsecrets":         "502 The backend of \"app\" broke off.\n ",
		"": "502 The backend of \"app\" broke off.\n ",
	} {
		f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
		})}, "a.test"))
		res, body := raw(t, f, "a.test", handshakeRequest)
		if got := fmt.Sprintf("%d %s %s", res.StatusCode, body, res.Header.Get("X-Why")); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
	}
	f := start(t, Options{}, webAt(t, []string{deadAddr(t)}, "a.test"))
	if res, _ := raw(t, f, "a.test", handshakeRequest); res.StatusCode != http.StatusBadGateway {
		t.Errorf("backend down: %d", res.StatusCode)
	}
}

// wsEcho is a backend that returns each message.
func wsEcho(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 22)
	for {
		kind, msg, err := c.Read(r.Context())
		if err != nil {
			return
		}
		if c.Write(r.Context(), kind, msg) != nil {
			return
		}
	}
}

func (f *fixture) dialWebSocket(t testing.TB, host string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://"+host+"/", &websocket.DialOptions{HTTPClient: f.client(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 22)
	t.Cleanup(func() { c.CloseNow() })
	return c
}

func TestWebSocketPeer(t *testing.T) {
	f := start(t, Options{}, web(t, wsEcho, "a.test"))
	c := f.dialWebSocket(t, "a.test")
	for _, msg := range []string{"hello", "", strings.Repeat("x", 1<<20)} {
		if err := c.Write(t.Context(), websocket.MessageText, []byte(msg)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := c.Read(t.Context()); err != nil || string(got) != msg {
			t.Fatalf("%d bytes came back as %d, %v", len(msg), len(got), err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("closing handshake: %v", err)
	}
}

// TestWebSocketOutlivesTheHeaderTimeout (tailscale/tailscale#8935).
func TestWebSocketOutlivesTheHeaderTimeout(t *testing.T) {
	f := start(t, Options{}, nil)
	f.headerTimeout = 100 * time.Millisecond
	f.apply(t, web(t, wsEcho, "a.test"))
	c := f.dialWebSocket(t, "a.test")
	<-time.After(300 * time.Millisecond)
	if err := c.Write(t.Context(), websocket.MessageText, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := c.Read(t.Context()); err != nil || string(got) != "late" {
		t.Errorf("%q, %v", got, err)
	}
}
