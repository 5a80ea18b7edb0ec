package worker

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// probeTimeout bounds one connection attempt.
	probeTimeout = 2 * time.Second
	// probeFresh is how long a good answer counts; a bad one is tried again at the next pass.
	probeFresh = resync - time.Second
)

// prober connects to backends to see whether they are there.
type prober struct {
	dialer net.Dialer

	mu sync.Mutex
	// mu guards following
	good map[string]time.Time
}

func newProber() *prober {
	return &prober{dialer: net.Dialer{Timeout: probeTimeout}, good: map[string]time.Time{}}
}

// probe gives a line for each target that does not accept a connection, in order.
func (p *prober) probe(ctx context.Context, byExpose map[string][]string) []string {
	errs := map[string]error{}
	var mu sync.Mutex
	var dials sync.WaitGroup
	for target := range distinct(byExpose) {
		if p.fresh(target) {
			continue
		}
		dials.Go(func() {
			err := p.dial(ctx, target)
			mu.Lock()
			defer mu.Unlock()
			errs[target] = err
		})
	}
	dials.Wait()
	var faults []string
	for _, expose := range slices.Sorted(maps.Keys(byExpose)) {
		for _, target := range byExpose[expose] {
			if err := errs[target]; err != nil {
				faults = append(faults, fmt.Sprintf("exposes[%q]: %v; start the backend, or correct backend.targets", expose, err))
			}
		}
	}
	return faults
}

func distinct(byExpose map[string][]string) map[string]bool {
	targets := map[string]bool{}
	for _, list := range byExpose {
		for _, target := range list {
			targets[target] = true
		}
	}
	return targets
}

func (p *prober) fresh(target string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.good[target]
	return ok && time.Since(at) < probeFresh
}

func (p *prober) dial(ctx context.Context, target string) error {
	conn, err := p.dialer.DialContext(ctx, "tcp", target)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		delete(p.good, target)
		return err
	}
	p.good[target] = time.Now()
	return conn.Close()
}
