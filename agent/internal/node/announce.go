package node

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"tailscale.com/client/local"
	"tailscale.com/tailcfg"
)

const (
	// announceRounds bounds how often a peer that does not answer is called.
	announceRounds = 5
	announceLimit  = 2 * time.Second
	announceAtOnce = 16
)

// announce calls the peers that the kept map has, those first that were there when it was kept: one that came at the last
// moment is not marked so yet. Those that still send to the old server's session begin a new one at once, instead of when
// theirs times out.
func announce(ctx context.Context, client *local.Client) {
	status, err := client.Status(ctx)
	if err != nil {
		return // the server is closing
	}
	var waiting, away []netip.Addr
	for _, peer := range status.Peer {
		switch {
		case len(peer.TailscaleIPs) == 0:
		case peer.Online:
			waiting = append(waiting, peer.TailscaleIPs[0])
		default:
			away = append(away, peer.TailscaleIPs[0])
		}
	}
	waiting = append(waiting, away...)
	for range announceRounds {
		if waiting = callAll(ctx, client, waiting); len(waiting) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(announceLimit):
		}
	}
}

// callAll calls peers and gives those that did not answer.
func callAll(ctx context.Context, client *local.Client, peers []netip.Addr) (silent []netip.Addr) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	slots := make(chan struct{}, announceAtOnce)
	for _, peer := range peers {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() == nil && call(ctx, client, peer) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			silent = append(silent, peer)
		})
	}
	calls.Wait()
	return silent
}

// call finds a path first: a session's first packet that goes nowhere is sent again only after five seconds.
func call(ctx context.Context, client *local.Client, peer netip.Addr) bool {
	for _, kind := range []tailcfg.PingType{tailcfg.PingDisco, tailcfg.PingTSMP} {
		limited, cancel := context.WithTimeout(ctx, announceLimit)
		_, err := client.Ping(limited, peer, kind)
		cancel()
		if err != nil {
			return false
		}
	}
	return true
}
