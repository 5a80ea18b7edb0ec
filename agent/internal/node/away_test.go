package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// awaitMemory waits until what the node was told of a peer is kept.
func (r *rig) awaitMemory(ctx context.Context, peers int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := testbed.Eventually(ctx, func() error {
		m, err := r.node.recall(ctx)
		if err != nil {
			return err
		}
		return m.knows(peers)
	}); err != nil {
		r.t.Fatal(err)
	}
}

// A3: after a restart it serves the last state with no control plane present, nor the relay that is part of it.
func TestRestartsWithoutTheControlPlane(t *testing.T) {
	for name, talk := range map[string]bool{"to a peer that talked before": true, "to one that never did": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			r := b.rig(t, "shop")
			r.start()
			first := r.awaitPhase(Running)
			peer := b.peer(t)
			address := first.Addresses[0].String()
			if talk {
				if err := echo(t.Context(), peer, address, patience); err != nil {
					t.Fatal(err)
				}
			}
			r.stop()
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
			r.renew("shop")
			r.start()
			began := time.Now()
			again := r.awaitPhase(Running)
			if again.Addresses[0] != first.Addresses[0] || again.DNSName != first.DNSName || again.NodeKey != first.NodeKey {
				t.Fatalf("was %+v, is %+v", first, again)
			}
			if !r.up.Load().Remembered || again.ControlAway.IsZero() {
				t.Fatalf("it does not tell that the control plane is away: %+v", again)
			}
			up := time.Since(began)
			if err := echo(t.Context(), peer, address, 30*time.Second); err != nil {
				t.Fatalf("the peer does not reach the node: %v\n%s", err, tail(r.log.String()))
			}
			t.Logf("up after %s, reached after %s", up, time.Since(began))
			if n := r.minted.Load(); n != 1 {
				t.Fatalf("%d keys were minted", n)
			}
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.await("contact", func(o Observation) bool { return o.Phase == Running && o.ControlAway.IsZero() })
			if err := echo(t.Context(), peer, address, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			if r.ups.Load() != 2 {
				t.Fatalf("up %d times: the return of the control plane made a new server", r.ups.Load())
			}
		})
	}
}

// What was withdrawn before the control plane went away is not let in again.
func TestRemembersWhatWasWithdrawn(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	first := r.awaitPhase(Running)
	peer := b.peer(t)
	address := first.Addresses[0].String()
	if err := echo(t.Context(), peer, address, patience); err != nil {
		t.Fatal(err)
	}
	// Another port stays granted, so that the peer is still known.
	policy := `{"tagOwners":{"tag:ingress":["ops@"],"tag:client":["ops@"]},
		"grants":[{"src":["tag:client"],"dst":["tag:ingress"],"ip":["tcp:7001"]}]}`
	if err := b.SetPolicy(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	r.awaitRule(t.Context(), "7001")
	// No parting word: what was kept by itself must do.
	kept, err := r.state.Read(t.Context(), stateMemory)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := r.state.Write(t.Context(), stateMemory, kept); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	r.renew("shop")
	r.start()
	r.awaitPhase(Running)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	if c, err := peer.Dial(ctx, "tcp", net.JoinHostPort(address, "7000")); err == nil {
		c.Close()
		t.Fatal("a peer whose grant was withdrawn is let in")
	}
}

// A process that is killed says no parting word: what was kept while it ran must do.
func TestRestartsWithoutTheControlPlaneAfterAKill(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.node.limits.save = 100 * time.Millisecond
	r.start()
	first := r.awaitPhase(Running)
	peer := b.peer(t)
	r.awaitMemory(t.Context(), 1)
	r.state.setFail(func(op, _ string) error {
		if op == "write" {
			return errors.New("the process is gone")
		}
		return nil
	})
	r.stop()
	r.state.setFail(nil)
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	r.renew("shop")
	r.start()
	r.awaitPhase(Running)
	if err := echo(t.Context(), peer, first.Addresses[0].String(), 30*time.Second); err != nil {
		t.Fatalf("the peer does not reach the node: %v\n%s", err, tail(r.log.String()))
	}
}

// A control plane that answers and lets no node in is as good as away.
func TestRestartsWithASickControlPlane(t *testing.T) {
	b := newBed(t)
	target, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	var sick atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() && r.URL.Path != "/key" {
			http.Error(w, "the database is locked", http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	r := b.rig(t, "shop")
	r.url = front.URL
	r.renew("shop")
	r.start()
	first := r.awaitPhase(Running)
	r.stop()
	sick.Store(true)
	r.renew("shop")
	r.node.limits.start = 500 * time.Millisecond
	r.start()
	again := r.awaitPhase(Running)
	if again.Addresses[0] != first.Addresses[0] || !r.up.Load().Remembered {
		t.Fatalf("was %+v, is %+v", first, again)
	}
	r.stop()
	// Without a memory there is nothing to serve from: that is told.
	if err := r.state.Write(t.Context(), stateMemory, nil); err != nil {
		t.Fatal(err)
	}
	r.renew("shop")
	r.node.limits.start = 500 * time.Millisecond
	r.start()
	r.await("late start", func(o Observation) bool {
		return o.Phase == Starting && strings.Contains(o.Message, "not on the tailnet after")
	})
	sick.Store(false)
	r.node.Reenrol() // wakes it, and enrols it anew
	r.awaitPhase(Running)
}

func TestTrafficGoesOnWithoutTheControlPlane(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	first := r.awaitPhase(Running)
	peer := b.peer(t)
	address := first.Addresses[0].String()
	if err := echo(t.Context(), peer, address, patience); err != nil {
		t.Fatal(err)
	}
	open, err := peer.Dial(t.Context(), "tcp", net.JoinHostPort(address, "7000"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := echoOn(open); err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	r.await("absence", func(o Observation) bool { return !o.ControlAway.IsZero() })
	for range 5 {
		if err := echoOn(open); err != nil {
			t.Fatalf("an open connection: %v", err)
		}
		if err := echo(t.Context(), peer, address, 5*time.Second); err != nil {
			t.Fatalf("a new connection: %v", err)
		}
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.await("contact", func(o Observation) bool { return o.ControlAway.IsZero() && o.Phase == Running })
	if err := echoOn(open); err != nil {
		t.Fatalf("an open connection: %v", err)
	}
	if r.ups.Load() != 1 {
		t.Fatalf("up %d times", r.ups.Load())
	}
}
