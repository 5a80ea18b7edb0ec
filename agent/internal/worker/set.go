// Package worker brings about what is declared: one worker for each tailnet, ingress and issuer, each with its own loop,
// back-off and status. A worker takes its target from the newest blueprint, looks at what is there, and acts on the
// difference. None waits for another: what one has not done yet is something that another finds undone, and says so.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/edge"
	"github.com/posterndev/terraform-provider-postern/agent/internal/node"
	"github.com/posterndev/terraform-provider-postern/agent/internal/reconcile"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// resync is the longest time between two passes of a worker. Within it, what nobody tells us of is found: a device deleted
// at the control plane (Headscale does not tell the node), a policy edited by hand, a backend that went or came.
const resync = 10 * time.Second

// Deps is what workers work with. Every field is required.
type Deps struct {
	Registry *registry.Registry
	Store    store.Store
	Sealer   registry.Sealer
	// Instance marks what this agent owns in a policy.
	Instance string
	// Dir is a folder for what workers keep on disk.
	Dir string
	// Connect makes a client of a tailnet's control plane.
	Connect func(t *desired.Tailnet, apiKey func() (string, error)) (controlplane.Client, error)
	// Traffic gives the counters of what an ingress's edge carries, by the ingress's id.
	Traffic func(ingress string) edge.Metrics
	Log     *slog.Logger
}

// worker is the common part of all workers.
type worker interface {
	// pass looks and acts once. It answers reconcile.ErrDone when its object is gone and nothing of it is left.
	pass(ctx context.Context) error
	// close gives up what the worker holds, when the agent stops; what is outside stays as it is.
	close(ctx context.Context)
}

// Set runs a worker for each declared object.
type Set struct {
	deps Deps

	mu sync.Mutex
	// mu guards following
	workers map[string]*running
	// inputs has what each worker was last poked for.
	inputs map[string]string
	nodes  int
}

type running struct {
	worker worker
	loop   *reconcile.Loop
	done   chan struct{}
}

// New makes a set of workers. Nothing runs before Run.
func New(d Deps) *Set {
	return &Set{deps: d, workers: map[string]*running{}, inputs: map[string]string{}}
}

// Run keeps a worker for every object until ctx ends, then stops them all and gives their edges grace to drain.
func (s *Set) Run(ctx context.Context, grace time.Duration) error {
	passes, stop := context.WithCancel(ctx)
	defer stop()
	changes, err := s.deps.Registry.Changes(passes)
	if err != nil {
		return err
	}
	tick := time.NewTicker(resync)
	defer tick.Stop()
	for {
		if err := s.spread(passes); err != nil && ctx.Err() == nil {
			s.deps.Log.Error("reading what is declared", "err", err)
		}
		select {
		case <-ctx.Done():
			stop()
			s.stop(grace)
			return nil
		case <-changes:
		case <-tick.C:
		}
	}
}

// spread starts the workers that are missing, forgets those that are done, and pokes those for whom something changed.
func (s *Set) spread(ctx context.Context) error {
	view, err := s.deps.Registry.View(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]desired.Key{}
	for _, d := range view.Documents("") {
		wanted[d.Key.Path()] = d.Key
	}
	for path, r := range s.workers {
		if closed(r.done) {
			delete(s.workers, path)
			delete(s.inputs, path)
		}
	}
	start, _ := reconcile.Plan(wanted, s.workers)
	for _, path := range start {
		s.start(ctx, wanted[path])
	}
	shared := sharedInput(view)
	for path, r := range s.workers {
		if now := input(view, wanted[path], shared); s.inputs[path] != now {
			s.inputs[path] = now
			r.loop.Poke()
		}
	}
	return nil
}

// sharedInput is what matters to every ingress: how tailnets and issuers are declared, and whether they are ready.
func sharedInput(v *registry.View) string {
	var b strings.Builder
	for _, kind := range []desired.Kind{desired.KindTailnet, desired.KindIssuer} {
		for _, d := range v.Documents(kind) {
			fmt.Fprint(&b, d.Key, d.Revision, d.Ready().Status, d.Ready().Message, "\x00")
		}
	}
	return b.String()
}

// input is what matters to a worker. What a worker reports of its own object does not, or each report would bring a pass.
func input(v *registry.View, key desired.Key, shared string) string {
	d, ok := v.Document(key)
	if !ok {
		return "gone"
	}
	if key.Kind == desired.KindTailnet {
		return fmt.Sprint(d.Revision, fingerprint(v.Compilation.Policy(key.Name)))
	}
	comesTo, err := json.Marshal(d.Ingress)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(d.Revision, string(comesTo), shared)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// start needs mu.
func (s *Set) start(ctx context.Context, key desired.Key) {
	log := s.deps.Log.With(string(key.Kind), key.ID())
	r := &running{done: make(chan struct{})}
	r.loop = reconcile.New(func(ctx context.Context) error { return r.worker.pass(ctx) }, resync, log)
	switch key.Kind {
	case desired.KindTailnet:
		r.worker = newTailnet(s, key, r.loop, log)
	case desired.KindIngress:
		r.worker = newIngress(s, key, r.loop, log)
	case desired.KindIssuer:
		r.worker = newIssuer(s, key)
	}
	s.workers[key.Path()] = r
	go func() {
		defer close(r.done)
		r.loop.Run(ctx)
	}()
}

// stop waits for the passes to end, then closes all workers side by side.
func (s *Set) stop(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	s.mu.Lock()
	all := make([]*running, 0, len(s.workers))
	for _, r := range s.workers {
		all = append(all, r)
	}
	s.mu.Unlock()
	var closing sync.WaitGroup
	for _, r := range all {
		closing.Go(func() {
			<-r.done
			r.worker.close(ctx)
		})
	}
	closing.Wait()
}

// find gives the worker of an object, where it runs.
func find[W worker](s *Set, key desired.Key) (W, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none W
	r, ok := s.workers[key.Path()]
	if !ok {
		return none, false
	}
	w, ok := r.worker.(W)
	return w, ok
}

// countNodes keeps the process's memory limit in step with the number of nodes (A9).
func (s *Set) countNodes(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes += change
	node.ApplyMemoryLimit(s.nodes)
}

func tailnetKey(name string) desired.Key {
	return desired.Key{Kind: desired.KindTailnet, Namespace: desired.NoNamespace, Name: name}
}

// pokeIngresses has every ingress look again.
func (s *Set) pokeIngresses() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.workers {
		if _, ok := r.worker.(*ingress); ok {
			r.loop.Poke()
		}
	}
}
