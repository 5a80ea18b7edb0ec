// Package agent puts the parts of the agent together: in which order they start, that they run, and in which order they
// stop. What they do is theirs.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane/headscale"
	"github.com/posterndev/terraform-provider-postern/agent/internal/vault"
	"github.com/posterndev/terraform-provider-postern/agent/internal/worker"
	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
	"github.com/posterndev/terraform-provider-postern/internal/server"
	"github.com/posterndev/terraform-provider-postern/internal/store"
	"github.com/posterndev/terraform-provider-postern/internal/store/bolt"
)

// Run runs an agent until ctx ends or a part fails. It starts the store, the API and the workers, and stops them in reverse:
// first nothing new is taken, then edges drain, then the store closes.
func Run(ctx context.Context, c Config, version string, log *slog.Logger) (err error) {
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	keys, err := vault.Open(filepath.Join(c.StateDir, "postern.key"))
	if err != nil {
		return err
	}
	db, instance, err := openStore(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	info := api.Info{API: api.Version, Agent: version, Instance: instance}
	deps := worker.Deps{Store: db, Sealer: keys, Instance: info.Instance, Dir: c.StateDir, Log: log}
	deps.Connect = func(t *desired.Tailnet, apiKey func() (string, error)) (controlplane.Client, error) {
		return connect(t, apiKey, log)
	}
	deps.Registry = registry.New(db, keys, func(ctx context.Context, t *desired.Tailnet, apiKey string) blueprint.Facts {
		return deps.Probe(ctx, t, apiKey)
	})
	metrics := newMetrics(deps.Registry, version)
	deps.Traffic = metrics.traffic

	var ready atomic.Bool
	admin := server.New(server.Config{
		Registry: deps.Registry, Tokens: server.NewTokens(db), Info: info, Log: log, Metrics: metrics.handler(),
		Ready: func() error {
			if !ready.Load() {
				return errors.New("the agent is starting or stopping")
			}
			return nil
		},
	})
	listeners, err := listen(c, admin)
	if err != nil {
		return err
	}
	log.Info("agent is running", "version", version, "state_dir", c.StateDir, "endpoint", "unix://"+c.Socket, "listen", c.Listen)
	return run(ctx, c, listeners, worker.New(deps), &ready)
}

// openStore opens the embedded store; its instance id marks what this agent owns elsewhere.
func openStore(c Config) (store.Store, string, error) {
	db, err := bolt.Open(filepath.Join(c.StateDir, "postern.db"))
	if err != nil {
		return nil, "", err
	}
	embedded, ok := db.(*bolt.Store)
	if !ok {
		return nil, "", errors.Join(errors.New("opening the store: it is not the embedded one"), db.Close())
	}
	return db, embedded.Instance(), nil
}

func connect(t *desired.Tailnet, apiKey func() (string, error), log *slog.Logger) (controlplane.Client, error) {
	options := headscale.Options{URL: t.Headscale.URL, APIKey: apiKey, Log: log}
	if t.Headscale.CAPEM != nil {
		options.CAPEM = []byte(*t.Headscale.CAPEM)
	}
	return headscale.New(options)
}

// run serves until ctx ends or something fails; then it has the API finish its answers, and the edges drain.
func run(ctx context.Context, c Config, listeners []bound, workers *worker.Set, ready *atomic.Bool) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range listeners {
		group.Go(func() error {
			if err := l.server.Serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving %s: %w", l.listener.Addr(), err)
			}
			return nil
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		ready.Store(false)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		for _, l := range listeners {
			if l.server.Shutdown(closing) != nil {
				_ = l.server.Close() // who still waits for an answer asks again
			}
		}
		return nil
	})
	group.Go(func() error {
		ready.Store(true)
		return workers.Run(ctx, c.drain)
	})
	return group.Wait()
}
