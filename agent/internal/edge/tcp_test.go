package edge

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func tcp(targets ...string) *Snapshot {
	return &Snapshot{TCP: map[uint16]Stream{5432: {Expose: "db", Targets: targets}}}
}

// TestHalfClose checks every order in which the two ends may finish, with data
// of both directions arriving whole (X2).
func TestHalfClose(t *testing.T) {
	payload := make([]byte, 3<<20)
	rand.Read(payload)
	for _, opaque := range []bool{false, true} {
		for _, clientFirst := range []bool{true, false} {
			for _, sizes := range [][2]int{{len(payload), len(payload)}, {0, len(payload)}, {len(payload), 0}, {1, 1}, {0, 0}} {
				t.Run(fmt.Sprintf("opaque=%v/clientFirst=%v/up=%d,down=%d", opaque, clientFirst, sizes[0], sizes[1]), func(t *testing.T) {
					up, down := payload[:sizes[0]], payload[:sizes[1]]
					atBackend := make(chan []byte, 1)
					target := serveTCP(t, func(c *net.TCPConn) { atBackend <- converse(t, c, !clientFirst, down) })
					f := start(t, Options{}, nil)
					f.net.opaque = opaque
					f.apply(t, tcp(target))
					got := converse(t, f.dial(t, 5432), clientFirst, up)
					if !bytes.Equal(got, down) {
						t.Errorf("client got %d bytes, want %d", len(got), len(down))
					}
					if b := <-atBackend; !bytes.Equal(b, up) {
						t.Errorf("backend got %d bytes, want %d", len(b), len(up))
					}
					eventually(t, "stream gone", func() bool { return f.open.len() == 0 })
				})
			}
		}
	}
}

// converse sends data and half-closes, then reads to the end; or the other way round.
func converse(t *testing.T, c *net.TCPConn, first bool, data []byte) []byte {
	var got []byte
	send := func() {
		if _, err := c.Write(data); err != nil {
			t.Errorf("sending: %v", err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Errorf("half-closing: %v", err)
		}
	}
	if first {
		send()
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("receiving: %v", err)
	}
	if !first {
		send()
	}
	return got
}

func TestBulkBothWays(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		t.Run(fmt.Sprintf("opaque=%v", opaque), func(t *testing.T) {
			f := start(t, Options{}, nil)
			f.net.opaque = opaque
			f.apply(t, tcp(serveTCP(t, echo)))
			c := f.dial(t, 5432)
			sent := sha256.New()
			go func() {
				io.Copy(io.MultiWriter(c, sent), io.LimitReader(rand.Reader, 32<<20))
				c.CloseWrite()
			}()
			got := sha256.New()
			if _, err := io.Copy(got, c); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				t.Error("the echo differs")
			}
		})
	}
}

// TestAbortIsPassedOn checks that neither end takes the other's abort for a clean end.
func TestAbortIsPassedOn(t *testing.T) {
	t.Run("backend", func(t *testing.T) {
		f := start(t, Options{}, tcp(serveTCP(t, func(c *net.TCPConn) {
			io.ReadFull(c, make([]byte, 4))
			c.Write([]byte("part"))
			c.SetLinger(0)
		})))
		c := f.dial(t, 5432)
		c.Write([]byte("ping"))
		if got, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("client read %q, %v; want a reset", got, err)
		}
	})
	t.Run("client", func(t *testing.T) {
		atBackend := make(chan error, 1)
		f := start(t, Options{}, tcp(serveTCP(t, func(c *net.TCPConn) {
			c.Write([]byte("go"))
			_, err := io.ReadAll(c)
			atBackend <- err
		})))
		c := f.dial(t, 5432)
		io.ReadFull(c, make([]byte, 2))
		c.SetLinger(0)
		c.Close()
		if err := <-atBackend; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("backend read %v; want a reset", err)
		}
	})
}

// TestResponseBeforeRequestEnds: a backend that answers and closes while the
// client still sends; the answer must arrive.
func TestResponseBeforeRequestEnds(t *testing.T) {
	f := start(t, Options{}, tcp(serveTCP(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.Write([]byte("answer"))
		c.CloseWrite()
	})))
	c := f.dial(t, 5432)
	go func() {
		for {
			if _, err := c.Write(make([]byte, 1<<10)); err != nil {
				return
			}
		}
	}()
	got := make([]byte, 6)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "answer" {
		t.Errorf("client read %q, %v", got, err)
	}
}

func TestNextTargetWhenOneIsDown(t *testing.T) {
	f := start(t, Options{}, tcp(deadAddr(t), serveTCP(t, echo), deadAddr(t)))
	for range 6 {
		c := f.dial(t, 5432)
		c.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func TestTargetsTakeTurns(t *testing.T) {
	var hits [3]atomic.Int64
	var targets []string
	for i := range hits {
		targets = append(targets, serveTCP(t, func(c *net.TCPConn) { hits[i].Add(1); echo(c) }))
	}
	f := start(t, Options{}, tcp(targets...))
	for range 9 {
		c := f.dial(t, 5432)
		c.CloseWrite()
		io.ReadAll(c)
		f.apply(t, tcp(targets...)) // keeps the turn
	}
	for i := range hits {
		if n := hits[i].Load(); n != 3 {
			t.Errorf("target %d got %d connections of 9", i, n)
		}
	}
}

func TestAllTargetsDown(t *testing.T) {
	rejected := make(chan string, 1)
	f := start(t, Options{Metrics: Metrics{Rejected: func(expose, reason string) { rejected <- expose + " " + reason }}},
		tcp(deadAddr(t), deadAddr(t)))
	if err := f.refused(t, 5432); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client got %v; want a reset", err)
	}
	if r := <-rejected; r != "db "+RejectUnreachable {
		t.Errorf("rejected %q", r)
	}
}

func TestLinkLocalIsRefused(t *testing.T) {
	dial := guardedDialer()
	for _, addr := range []string{"169.254.169.254:80", "[fe80::1%lo]:80", "[::ffff:169.254.169.254]:80"} {
		c, err := dial(t.Context(), "tcp", addr)
		if err == nil {
			c.Close()
		}
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte("link-local")) {
			t.Errorf("dialling %s: %v", addr, err)
		}
	}
}

func TestConnectionLimit(t *testing.T) {
	rejected := make(chan string, 8)
	f := start(t, Options{MaxConns: 2, Metrics: Metrics{Rejected: func(expose, reason string) { rejected <- expose + " " + reason }}},
		tcp(serveTCP(t, echo)))
	ping := func(c net.Conn) error {
		c.Write([]byte("x"))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	a, b := f.dial(t, 5432), f.dial(t, 5432)
	if err := errors.Join(ping(a), ping(b)); err != nil {
		t.Fatal(err)
	}
	if err := f.refused(t, 5432); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("third connection got %v; want a reset", err)
	}
	if r := <-rejected; r != "db "+RejectTooMany {
		t.Errorf("rejected %q", r)
	}
	a.Close()
	eventually(t, "room again", func() bool { return f.open.len() == 1 })
	if err := errors.Join(ping(b), ping(f.dial(t, 5432))); err != nil {
		t.Error(err)
	}
}

func TestProxyHeaderReachesTheBackend(t *testing.T) {
	for version, want := range map[string]func(c net.Conn) string{
		"v1": func(c net.Conn) string {
			l, r := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
			return fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\n", l.Port, r.Port)
		},
		"v2": func(c net.Conn) string { return string(proxyHeader("v2", c.LocalAddr(), c.RemoteAddr())) },
	} {
		got := make(chan []byte, 1)
		s := tcp(serveTCP(t, func(c *net.TCPConn) { b, _ := io.ReadAll(c); got <- b }))
		st := s.TCP[5432]
		st.ProxyProtocol = version
		s.TCP[5432] = st
		f := start(t, Options{}, s)
		c := f.dial(t, 5432)
		c.Write([]byte("hello"))
		c.CloseWrite()
		if b := <-got; string(b) != want(c)+"hello" {
			t.Errorf("%s: backend got %q", version, b)
		}
	}
}

// TestStalledDialDoesNotHoldTheListener: one expose with a target that never
// answers, another client still gets in.
func TestStalledDialDoesNotHoldTheListener(t *testing.T) {
	release := make(chan struct{})
	d := func(target string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", target) }
	}(serveTCP(t, echo))
	var n atomic.Int64
	f := start(t, Options{Dialer: dialerFunc(func() (net.Conn, error) {
		if n.Add(1) == 1 {
			<-release
			return nil, errors.New("stalled")
		}
		return d()
	})}, tcp("ignored:1"))
	stalled := f.dial(t, 5432)
	eventually(t, "dialling", func() bool { return n.Load() == 1 })
	c := f.dial(t, 5432)
	c.Write([]byte("x"))
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	close(release)
	if _, err := io.ReadAll(stalled); err == nil {
		t.Error("a clean end for a stream that was never connected")
	}
}
