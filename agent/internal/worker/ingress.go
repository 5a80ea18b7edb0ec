package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/certs"
	"github.com/posterndev/terraform-provider-postern/agent/internal/node"
	"github.com/posterndev/terraform-provider-postern/agent/internal/reconcile"
	"github.com/posterndev/terraform-provider-postern/agent/internal/status"
	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
)

// settleTime is how soon a pass looks again while something is on its way that tells nobody when it is there.
const settleTime = 500 * time.Millisecond

// ingress runs one identity and its edge.
type ingress struct {
	set      *Set
	key      desired.Key
	loop     *reconcile.Loop
	log      *slog.Logger
	state    *sealed // the node's keys
	pairs    *sealed // the issued certificates
	manager  *certs.Manager
	backends *prober

	mu sync.Mutex
	// mu guards following
	identity *identity // nil while no node runs
}

func newIngress(s *Set, key desired.Key, loop *reconcile.Loop, log *slog.Logger) *ingress {
	w := &ingress{
		set: s, key: key, loop: loop, log: log, backends: newProber(),
		state: s.sealed("nodes", key, node.ErrNoState), pairs: s.sealed("certs", key, certs.ErrNotFound),
	}
	w.manager = certs.NewManager(w.pairs, w.authority)
	return w
}

// authority finds an issuer's CA by its key's path.
func (w *ingress) authority(path string) (*certs.CA, error) {
	parts := strings.Split(path, "/")
	key, err := desired.ParseKey(desired.Kind(parts[0]), parts[1], parts[2])
	if err != nil {
		return nil, err
	}
	return w.set.authority(key)
}

// target is what one pass works towards.
type target struct {
	document *api.Document
	spec     *desired.Ingress
	tailnet  *desired.Tailnet
	plan     *blueprint.Ingress
	policy   []blueprint.PolicyEntry
	view     *registry.View
}

func (w *ingress) target(ctx context.Context) (*target, error) {
	view, err := w.set.deps.Registry.View(ctx)
	if err != nil {
		return nil, err
	}
	d, ok := view.Document(w.key)
	if !ok {
		return nil, nil
	}
	object, _ := view.Compilation.Object(w.key)
	document := *d // the view is everybody's
	t := &target{document: &document, plan: d.Ingress, view: view}
	t.spec, _ = object.Spec.(*desired.Ingress)
	if tailnet, ok := view.Compilation.Object(tailnetKey(t.spec.Tailnet)); ok {
		t.tailnet, _ = tailnet.Spec.(*desired.Tailnet)
		t.policy = view.Compilation.Policy(t.spec.Tailnet)
	}
	return t, nil
}

// pass brings the ingress a step closer to what is declared, and reports what it saw.
func (w *ingress) pass(ctx context.Context) error {
	t, err := w.target(ctx)
	if err != nil {
		return err
	}
	if t == nil {
		w.stopIdentity(ctx)
		return reconcile.ErrDone
	}
	if t.document.Deleting {
		return w.end(ctx, t)
	}
	report := status.Begin(w.set.deps.Registry, t.document,
		desired.Registered, desired.PolicyReady, desired.TLSReady, desired.BackendsReachable)
	for _, p := range t.plan.Problems {
		report.NotReady(p.Reason, p.FieldError.Error())
	}
	if t.plan.Withdrawn || t.tailnet == nil {
		w.stopIdentity(ctx)
		w.reportWithdrawn(report)
		return report.Commit(ctx)
	}
	wait := w.serve(ctx, t, report)
	if err := report.Commit(ctx); err != nil {
		return err
	}
	if wait > 0 {
		return &reconcile.Again{After: wait, Why: "something is on its way"}
	}
	return nil
}

// serve runs the node and its edge and answers with when to look again; 0 leaves that to the loop.
func (w *ingress) serve(ctx context.Context, t *target, report *status.Report) time.Duration {
	id := w.ensureIdentity(ctx, t)
	results, next := w.certificates(ctx, t)
	snapshot := w.snapshot(t, results)
	failures := id.apply(snapshot)
	waits := []time.Duration{
		w.reportNode(t, id, report), w.reportPolicy(t, report), until(next),
	}
	w.reportTLS(ctx, t, id, snapshot, results, report)
	w.reportEdge(t, id, failures, report)
	w.reportBackends(ctx, t, report)
	return soonest(waits)
}

func until(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(time.Second, time.Until(t))
}

// soonest is the shortest of the waits that are set.
func soonest(waits []time.Duration) time.Duration {
	var shortest time.Duration
	for _, wait := range waits {
		if wait > 0 && (shortest == 0 || wait < shortest) {
			shortest = wait
		}
	}
	return shortest
}

func (w *ingress) reportWithdrawn(report *status.Report) {
	const message = "the ingress is withdrawn until what Ready says is mended"
	for _, c := range []desired.ConditionType{desired.Registered, desired.PolicyReady, desired.TLSReady, desired.BackendsReachable} {
		report.Unknown(c, desired.ReasonPending, message)
	}
	report.Status = api.Status{Conditions: report.Status.Conditions, DeviceID: report.Status.DeviceID}
}

func (w *ingress) close(ctx context.Context) { w.stopIdentity(ctx) }

// tailnet finds the worker of the ingress's tailnet.
func (w *ingress) tailnet(name string) (*tailnet, error) {
	t, ok := find[*tailnet](w.set, tailnetKey(name))
	if !ok {
		return nil, errors.New("the tailnet's worker has not started yet")
	}
	return t, nil
}
