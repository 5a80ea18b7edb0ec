package edge

import (
	"crypto/tls"
	"errors"
	"io"
	mrand "math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

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

// TestStateWalk goes from any state to any other: exactly the wanted ports are
// open after each step, and nothing is left at the end.
func TestStateWalk(t *testing.T) {
	n := newTestNet()
	f := &fixture{Edge: New(n, Options{}), net: n}
	target, datagrams := serveTCP(t, echo), udpEcho(t)
	fds, routines := openFiles(t), runtime.NumGoroutine()
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
