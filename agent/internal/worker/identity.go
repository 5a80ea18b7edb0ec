package worker

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/edge"
	"github.com/posterndev/terraform-provider-postern/agent/internal/node"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// drainTime is how long an edge that is being ended waits for what runs on it.
const drainTime = 5 * time.Second

// identity is a running node and the edge on it.
type identity struct {
	node *node.Node
	// made tells what the node was made from: another one needs another node.
	made   string
	cancel context.CancelFunc
	done   chan struct{}
	edge   func(edge.Network) *edge.Edge

	mu sync.Mutex
	// mu guards following
	current  *edge.Edge // nil while the node has no server
	snapshot *edge.Snapshot
	upSince  time.Time
	nodeKey  string
}

// ensureIdentity gives the running node, and replaces it when what it is made from changed.
func (w *ingress) ensureIdentity(ctx context.Context, t *target) *identity {
	made := strings.Join([]string{t.tailnet.Headscale.URL, t.plan.Hostname}, "\x00")
	w.mu.Lock()
	id := w.identity
	w.mu.Unlock()
	if id != nil && id.made == made {
		return id
	}
	w.stopIdentity(ctx)
	id = w.startIdentity(t, made)
	w.mu.Lock()
	w.identity = id
	w.mu.Unlock()
	return id
}

func (w *ingress) startIdentity(t *target, made string) *identity {
	id := &identity{made: made, done: make(chan struct{})}
	id.edge = func(network edge.Network) *edge.Edge {
		return edge.New(network, edge.Options{Log: w.log, Metrics: w.set.deps.Traffic(w.key.ID())})
	}
	tailnet, tags := t.spec.Tailnet, t.plan.Tags
	id.node = node.New(node.Config{
		Hostname: t.plan.Hostname, ControlURL: t.tailnet.Headscale.URL, State: w.state,
		Dir: filepath.Join(w.set.deps.Dir, "nodes", w.key.Namespace, w.key.Name),
		MintKey: func(ctx context.Context) (string, error) {
			worker, err := w.tailnet(tailnet)
			if err != nil {
				return "", err
			}
			return worker.mint(ctx, tags)
		},
		Log: w.log,
		Up: func(up *node.Up) {
			id.attach(up)
			w.sawUp(tailnet, up)
		},
		Down: id.detach,
	})
	var ctx context.Context
	ctx, id.cancel = context.WithCancel(context.Background())
	w.set.countNodes(1)
	go func() {
		defer close(id.done)
		defer w.set.countNodes(-1)
		if err := id.node.Run(ctx); err != nil && ctx.Err() == nil {
			w.log.Error("node ended", "err", err)
		}
	}()
	go id.relay(w.loop.Poke)
	return id
}

// relay pokes the worker when the node's observation changes.
func (id *identity) relay(poke func()) {
	for {
		select {
		case <-id.done:
			return
		case <-id.node.Changed():
			poke()
		}
	}
}

// sawUp tells the tailnet's worker what a node that came up was told.
func (w *ingress) sawUp(tailnet string, up *node.Up) {
	w.loop.Poke()
	worker, err := w.tailnet(tailnet)
	if err != nil {
		return
	}
	if _, base, ok := strings.Cut(strings.TrimSuffix(up.DNSName, "."), "."); ok {
		worker.sawBase(base)
	}
	worker.look()
}

// attach puts an edge on a server that came up.
func (id *identity) attach(up *node.Up) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.current = id.edge(up.Server)
	id.upSince, id.nodeKey = time.Now(), up.NodeKey
	if id.snapshot != nil {
		_ = id.current.Apply(id.snapshot) // the next pass applies it again and reports
	}
}

// detach ends the edge before its server closes.
func (id *identity) detach() {
	id.mu.Lock()
	ending := id.current
	id.current, id.upSince = nil, time.Time{}
	id.mu.Unlock()
	if ending == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	_, _ = ending.Shutdown(ctx) // what it cuts it logs
}

// apply has the edge serve a snapshot, now or when the node is up. Its error is the edge's.
func (id *identity) apply(s *edge.Snapshot) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.snapshot = s
	if id.current == nil {
		return nil
	}
	return id.current.Apply(s)
}

// serving gives what the edge really serves; not ok while there is none.
func (id *identity) serving() (edge.Serving, bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.current == nil {
		return edge.Serving{}, false
	}
	return id.current.Serving(), true
}

// up gives since when the node is up and its key; a zero time while it is not.
func (id *identity) up() (since time.Time, nodeKey string) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.upSince, id.nodeKey
}

// stopIdentity drains the edge and closes the node. Its device and keys stay.
func (w *ingress) stopIdentity(ctx context.Context) {
	w.mu.Lock()
	id := w.identity
	w.identity = nil
	w.mu.Unlock()
	if id == nil {
		return
	}
	id.mu.Lock()
	ending := id.current
	id.current = nil
	id.mu.Unlock()
	if ending != nil {
		draining, cancel := context.WithTimeout(ctx, drainTime)
		cut, err := ending.Shutdown(draining)
		cancel()
		w.log.Info("edge drained", "cut", cut, "err", err)
	}
	id.cancel()
	<-id.done
}

// snapshot gives the data plane for what is planned and issued.
func (w *ingress) snapshot(t *target, pairs map[string]certResult) *edge.Snapshot {
	s := &edge.Snapshot{TCP: map[uint16]edge.Stream{}, UDP: map[uint16]edge.Datagram{}}
	for name, e := range t.spec.Exposes {
		port := uint16(e.EffectivePort())
		switch e.EffectiveMode() {
		case desired.ModeTCP:
			s.TCP[port] = edge.Stream{Expose: name, Targets: e.Backend.Targets, ProxyProtocol: desired.Value(e.ProxyProtocol, "")}
		case desired.ModeUDP:
			s.UDP[port] = edge.Datagram{Expose: name, Targets: e.Backend.Targets}
		}
	}
	if !t.spec.HasHTTP() {
		return s
	}
	s.RedirectHTTP = desired.Value(t.spec.RedirectHTTP, false)
	s.HTTPS = &edge.HTTPS{Hosts: map[string]edge.Host{}, Certificates: certificatesByName(pairs)}
	for host, expose := range t.plan.Routes {
		s.HTTPS.Hosts[host] = edge.Host{Expose: expose, Targets: t.spec.Exposes[expose].Backend.Targets}
	}
	return s
}
