package edge

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// udpEcho starts a backend that answers each datagram with itself.
func udpEcho(t testing.TB) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveEcho(t, pc)
	return pc.LocalAddr().String()
}

func serveEcho(t testing.TB, pc net.PacketConn) {
	var wg sync.WaitGroup
	t.Cleanup(func() { pc.Close(); wg.Wait() })
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(buf[:n], from)
		}
	})
}

func udp(idle time.Duration, targets ...string) *Snapshot {
	return &Snapshot{UDP: map[uint16]Datagram{53: {Expose: "dns", Targets: targets, IdleTimeout: idle}}}
}

func (f *fixture) dialUDP(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", f.net.addr(t, "udp", 53))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a datagram and reports whether the same came back.
func ask(c net.Conn, msg []byte, wait time.Duration) bool {
	c.Write(msg)
	c.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 1<<16)
	n, err := c.Read(buf)
	return err == nil && bytes.Equal(buf[:n], msg)
}

func TestDatagrams(t *testing.T) {
	f := start(t, Options{}, udp(0, udpEcho(t)))
	big := make([]byte, 60_000)
	rand.Read(big)
	a, b := f.dialUDP(t), f.dialUDP(t)
	for _, msg := range [][]byte{[]byte("hello"), big, {}} {
		if !ask(a, msg, 5*time.Second) || !ask(b, msg, 5*time.Second) {
			t.Errorf("%d bytes did not come back", len(msg))
		}
	}
	if n := f.open.len(); n != 2 {
		t.Errorf("%d flows, want 2", n)
	}
}

func TestIdleFlowEnds(t *testing.T) {
	var received, sent atomic.Int64
	f := start(t, Options{Metrics: Metrics{Closed: func(_, _ string, r, s int64) { received.Add(r); sent.Add(s) }}},
		udp(150*time.Millisecond, udpEcho(t)))
	c := f.dialUDP(t)
	// Datagrams in between keep the flow for longer than the timeout.
	for begin := time.Now(); time.Since(begin) < 400*time.Millisecond; {
		if !ask(c, []byte("ping"), 5*time.Second) {
			t.Fatal("no answer")
		}
	}
	if n := f.open.len(); n != 1 {
		t.Fatalf("%d flows while busy, want 1", n)
	}
	eventually(t, "flow idle", func() bool { return f.open.len() == 0 })
	if r := received.Load(); r == 0 || r != sent.Load() {
		t.Errorf("counted %d received, %d sent", r, sent.Load())
	}
	if !ask(c, []byte("again"), 5*time.Second) {
		t.Error("a new flow was not opened")
	}
}

func TestFlowLimit(t *testing.T) {
	var rejected atomic.Int64
	f := start(t, Options{MaxFlows: 2, Metrics: Metrics{Rejected: func(expose, reason string) {
		if expose == "dns" && reason == RejectTooMany {
			rejected.Add(1)
		}
	}}}, udp(200*time.Millisecond, udpEcho(t)))
	a, b, c := f.dialUDP(t), f.dialUDP(t), f.dialUDP(t)
	if !ask(a, []byte("a"), 5*time.Second) || !ask(b, []byte("b"), 5*time.Second) {
		t.Fatal("no answer")
	}
	c.Write([]byte("c"))
	eventually(t, "third flow refused", func() bool { return rejected.Load() == 1 })
	eventually(t, "room again", func() bool { return ask(c, []byte("c"), 50*time.Millisecond) })
}

// TestFlowOutlivesItsTarget: ICMP errors neither end the flow nor the listener.
func TestFlowOutlivesItsTarget(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := pc.LocalAddr().String()
	pc.Close()
	f := start(t, Options{}, udp(0, target))
	c := f.dialUDP(t)
	for range 5 {
		ask(c, []byte("lost"), 5*time.Millisecond)
	}
	pc, err = net.ListenPacket("udp", target)
	if err != nil {
		t.Fatal(err)
	}
	serveEcho(t, pc)
	eventually(t, "answer", func() bool { return ask(c, []byte("back"), 100*time.Millisecond) })
	if n := f.open.len(); n != 1 {
		t.Errorf("%d flows, want the first one alone", n)
	}
}

// TestSilentFlowDoesNotHoldShutdown: nothing tells when a flow is over, so
// a second of silence does.
func TestSilentFlowDoesNotHoldShutdown(t *testing.T) {
	f := start(t, Options{}, udp(0, udpEcho(t)))
	if !ask(f.dialUDP(t), []byte("x"), 5*time.Second) {
		t.Fatal("no answer")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if cut, err := f.Shutdown(ctx); cut != 0 || err != nil || ctx.Err() != nil {
		t.Errorf("Shutdown: %d cut, %v", cut, err)
	}
}
