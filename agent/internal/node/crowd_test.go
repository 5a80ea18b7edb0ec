package node

import (
	"net"
	"testing"
	"time"
)

// The peers together have more connections than tsnet's queue of outgoing packets holds, and each by itself has far fewer, so
// that the peers close: an end that was not acknowledged and a reset for each must fit.
const (
	crowds = 3
	crowd  = 190
)

// A node with many open connections closes: tsnet sends each a reset when nobody empties its queue any more, and would wait
// for ever once that is full.
func TestClosesWithManyConnectionsOpen(t *testing.T) {
	b := newBed(t)
	r := b.rig(t, "shop")
	r.start()
	seen := r.awaitPhase(Running)
	address := seen.Addresses[0].String()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close() // its other end is gone
		}
	}()
	for range crowds {
		peer := b.peer(t)
		if err := echo(t.Context(), peer, address, patience); err != nil {
			t.Fatal(err)
		}
		for range crowd {
			c, err := peer.Dial(t.Context(), "tcp", net.JoinHostPort(address, "7000"))
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
	}
	begun := time.Now()
	r.stop()
	if took := time.Since(begun); took > unstickAfter+closeLimit/2 {
		t.Fatalf("closing took %v", took)
	}
}
