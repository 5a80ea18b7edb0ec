package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/reconcile"
	"github.com/posterndev/terraform-provider-postern/agent/internal/status"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// end takes a deleted ingress apart in order: drain, close the node, delete the device, let the policy entries go, forget
// the keys (P11). Each step looks whether it is done already, so that it goes on where an agent that died left it.
func (w *ingress) end(ctx context.Context, t *target) error {
	w.rememberDevice(t)
	w.stopIdentity(ctx)
	if err := w.deleteDevice(ctx, t); err != nil {
		return w.reportEnding(ctx, t, "deleting its device at the control plane", err)
	}
	if !t.document.Released {
		return w.set.deps.Registry.Release(ctx, w.key)
	}
	if t.tailnet != nil {
		worker, err := w.tailnet(t.spec.Tailnet)
		if err == nil && !worker.cleared(w.key) {
			worker.look()
			err = errors.New("its entries are still in the tailnet's policy")
		}
		if err != nil {
			again := w.reportEnding(ctx, t, "removing its policy entries", err)
			var waits *reconcile.Again
			if errors.As(again, &waits) {
				return again
			}
			return &reconcile.Again{After: settleTime, Why: err.Error()}
		}
	}
	return errors.Join(w.forget(ctx), w.set.deps.Registry.Finish(ctx, w.key))
}

// rememberDevice notes the device's id while the node still runs, for the step that deletes it.
func (w *ingress) rememberDevice(t *target) {
	w.mu.Lock()
	id := w.identity
	w.mu.Unlock()
	worker, err := w.tailnet(t.spec.Tailnet)
	if id == nil || err != nil || t.document.Status.DeviceID != "" {
		return
	}
	since, nodeKey := id.up()
	if device, found, _ := worker.device(nodeKey, since); found {
		t.document.Status.DeviceID = device.ID
	}
}

// deleteDevice deletes what the node is at the control plane. A node that never enrolled has nothing there.
func (w *ingress) deleteDevice(ctx context.Context, t *target) error {
	if t.document.Released || t.tailnet == nil {
		return nil
	}
	names, err := w.state.Names(ctx)
	if err != nil || len(names) == 0 && t.document.Status.DeviceID == "" {
		return err
	}
	worker, err := w.tailnet(t.spec.Tailnet)
	if err != nil {
		return err
	}
	client, err := worker.current()
	if err != nil {
		return err
	}
	id, err := ownDevice(ctx, client, t)
	if err != nil || id == "" {
		return err
	}
	if err := client.DeleteNode(ctx, id); err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return err
	}
	return nil
}

// ownDevice finds the ingress's device: by the id that was recorded, or else by the tag that no other device has (P4). The
// tag must be there either way: a device without it is somebody else's, and is never deleted.
func ownDevice(ctx context.Context, client controlplane.Client, t *target) (string, error) {
	devices, err := client.Nodes(ctx)
	if err != nil {
		return "", err
	}
	found := ""
	for _, d := range devices {
		if !slices.Contains(d.Tags, t.plan.Tag) {
			continue
		}
		if d.ID == t.document.Status.DeviceID {
			return d.ID, nil
		}
		found = d.ID
	}
	return found, nil
}

// forget removes what the worker kept of the ingress.
func (w *ingress) forget(ctx context.Context) error {
	dir := filepath.Join(w.set.deps.Dir, "nodes", w.key.Namespace, w.key.Name)
	return errors.Join(w.state.Clear(ctx), w.pairs.Clear(ctx), os.RemoveAll(dir))
}

// reportEnding says what the end waits for.
func (w *ingress) reportEnding(ctx context.Context, t *target, step string, err error) error {
	report := status.Begin(w.set.deps.Registry, t.document)
	report.NotReady(desired.ReasonDeleting, fmt.Sprintf("%s: %s", step, explain(err)))
	return errors.Join(err, report.Commit(ctx))
}
