package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tailscale.com/client/local"
	"tailscale.com/health"
	"tailscale.com/ipn"
	"tailscale.com/tsnet"
)

// saveDelay is how long what the node was told settles before it is saved for a start without the control plane.
const saveDelay = time.Second

// watch follows one server.
type watch struct {
	node   *Node
	server *tsnet.Server
	client *local.Client
	// enrolled says that the server was started without a key.
	enrolled bool
	// cached says that the server began with what an earlier one was told.
	cached bool

	up      atomic.Bool
	told    *Up
	saving  *time.Timer
	working sync.WaitGroup
	cancel  context.CancelFunc
}

func (w *watch) isUp() bool { return w.up.Load() }

// take acts on one notice of the backend. An error ends the attempt.
func (w *watch) take(ctx context.Context, notice *ipn.Notify) error {
	if notice.ErrMessage != nil {
		w.node.observe(KeyRefused, "the control plane refuses the node: "+*notice.ErrMessage)
		return fmt.Errorf("%w: %s", errKeyNeeded, *notice.ErrMessage)
	}
	if notice.BrowseToURL != nil && *notice.BrowseToURL != "" {
		w.node.observe(NeedsLogin, "the control plane no longer knows the node, or its key expired; the agent enrols it again")
		return errKeyNeeded
	}
	if notice.Health != nil && !w.isUp() {
		w.tellHealth(notice.Health)
	}
	if notice.State != nil && *notice.State == ipn.NeedsLogin && w.isUp() {
		w.node.observe(NeedsLogin, "the control plane ended the node's login; the agent enrols it again")
		return errKeyNeeded
	}
	if notice.State != nil && *notice.State == ipn.Running || notice.SelfChange != nil && w.isUp() {
		return w.refresh(ctx)
	}
	if w.isUp() {
		w.save()
	}
	return nil
}

// tellHealth says why the node does not come up, where the backend knows.
func (w *watch) tellHealth(state *health.State) {
	for code, warning := range state.Warnings {
		if strings.Contains(string(code), "login-state") && w.enrolled {
			w.node.observe(ControlUnreachable, "the control plane does not answer: "+warning.Text)
		}
	}
}

// refresh takes note of what the node was told of itself, and the first time says that it is up.
func (w *watch) refresh(ctx context.Context) error {
	up, err := upFrom(ctx, w.server, w.client)
	if err != nil || up == nil {
		return err
	}
	w.save()
	if w.isUp() {
		if w.told.DNSName != up.DNSName || !slices.Equal(w.told.Addresses, up.Addresses) {
			w.told = up
			w.node.observeUp(up)
		}
		return nil
	}
	if err := w.node.config.State.Write(ctx, stateEnrolled, []byte(up.StableID)); err != nil {
		return fmt.Errorf("recording the enrolment: %w", err)
	}
	w.told = up
	w.up.Store(true)
	w.node.observeUp(up)
	w.node.config.Up(up)
	if w.cached {
		var working context.Context
		working, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
		w.working.Go(func() { announce(working, w.client) })
	}
	return nil
}

// save writes what the node was told a while after the last change.
func (w *watch) save() {
	if w.saving != nil {
		w.saving.Reset(saveDelay)
		return
	}
	w.saving = time.AfterFunc(saveDelay, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.node.remember(ctx, w.client); err != nil {
			w.node.config.Log.Debug("saving what the node was told", "err", err)
		}
	})
}

// down has everything stop using the server.
func (w *watch) down() {
	if w.saving != nil {
		w.saving.Stop()
	}
	if w.cancel != nil {
		w.cancel()
	}
	w.working.Wait()
	if w.up.Swap(false) {
		w.node.config.Down()
		w.node.observe(Starting, "the node is being started again")
	}
}
