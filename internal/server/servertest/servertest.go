// Package servertest runs the real admin API on a store in memory, for tests of its clients. Nothing is served on any
// tailnet: an observer reports what an agent would, when it is asked to.
package servertest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/blueprint"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
	"github.com/posterndev/terraform-provider-postern/internal/server"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

// BaseDomain is the MagicDNS base domain that the observer reports.
const BaseDomain = "tail.test"

// Server is a running admin API.
type Server struct {
	// Endpoint is the server's Unix socket, as clients take it.
	Endpoint string
	// Client is a client of workspace "test".
	Client *api.Client
	// Registry is what the server works on.
	Registry *registry.Registry
	// Store is what the registry works on.
	Store store.Store

	http *http.Server
	stop context.CancelFunc
	done sync.WaitGroup

	mu sync.Mutex
	// mu guards following
	auto  bool
	facts map[string]blueprint.Facts
}

// Start runs a server until the test ends. Its observer is on.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{Store: store.Memory(), auto: true, facts: map[string]blueprint.Facts{}}
	s.Registry = registry.New(s.Store, plain{}, s.probe)
	dir, err := os.MkdirTemp("", "postern") // tb.TempDir is too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	s.Endpoint = "unix://" + socket
	if s.Client, err = api.NewClient(api.Options{Endpoint: s.Endpoint, Workspace: "test"}); err != nil {
		tb.Fatal(err)
	}
	s.listen(tb, socket)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	changes, err := s.Registry.Changes(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	s.done.Go(func() { s.observe(ctx, changes) })
	tb.Cleanup(func() {
		s.Stop()
		s.Client.Close()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func (s *Server) listen(tb testing.TB, socket string) {
	tb.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		tb.Fatal(err)
	}
	handler := server.New(server.Config{
		Registry: s.Registry, Tokens: server.NewTokens(s.Store), Info: api.Info{API: api.Version, Agent: "test", Instance: "test"},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}).Local()
	s.http = &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	s.done.Go(func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
}

// Stop ends the server: its endpoint refuses connections from then on. Stopping twice is fine.
func (s *Server) Stop() {
	s.stop()
	_ = s.http.Close() // it only closes
	s.done.Wait()
	_ = s.Store.Close() // memory
}

// AutoReady switches the observer: off, nothing becomes ready, and nothing that is being deleted goes.
func (s *Server) AutoReady(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auto = on
}

// SetFacts is what a dry run of a tailnet observes.
func (s *Server) SetFacts(tailnet string, f blueprint.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[tailnet] = f
}

func (s *Server) probe(_ context.Context, t *desired.Tailnet, _ string) blueprint.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts[t.Name]
}

// observe reports on every object after each change, as the agent's workers do, and ends what is being deleted.
func (s *Server) observe(ctx context.Context, changes <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond) // for AutoReady, which changes nothing in the store
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-tick.C:
		}
		s.mu.Lock()
		auto := s.auto
		s.mu.Unlock()
		view, err := s.Registry.View(ctx)
		if err != nil {
			continue
		}
		for _, d := range view.Documents("") {
			switch {
			case d.Deleting && auto:
				_ = s.Registry.Finish(ctx, d.Key) // the next pass tries again
			case !d.Deleting:
				s.report(ctx, d, auto)
			}
		}
	}
}

func (s *Server) report(ctx context.Context, d *api.Document, ready bool) {
	status := d.Status
	changed := false
	set := func(t desired.ConditionType, ok bool, reason desired.Reason, message string) {
		c := desired.Condition{Type: t, Status: desired.False, Reason: reason, Message: message, Generation: d.Revision}
		if ok {
			c.Status, c.Reason, c.Message = desired.True, desired.ReasonOK, "as it should be"
		}
		changed = status.Conditions.Set(c, time.Now()) || changed
	}
	status.Conditions = append(desired.Conditions(nil), status.Conditions...)
	if d.Ingress != nil {
		set(desired.Registered, ready, desired.ReasonControlPlaneAway, "the control plane does not answer; start it")
		for _, p := range d.Ingress.Problems {
			ready = false
			set(desired.Ready, false, p.Reason, p.FieldError.Error())
		}
		s.identity(d, &status)
	}
	if d.Ingress == nil || len(d.Ingress.Problems) == 0 {
		set(desired.Ready, ready, desired.ReasonConditionsFalse, "something is not ready yet")
	}
	if d.Key.Kind == desired.KindIssuer {
		status.CertificatePEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
	}
	if d.Key.Kind == desired.KindTailnet {
		status.BaseDomain, status.Version = BaseDomain, "0.29.2"
	}
	if changed {
		_ = s.Registry.SetStatus(ctx, d.Key, d.Revision, status) // the next pass tries again
	}
}

// identity reports an address that no other object has.
func (s *Server) identity(d *api.Document, status *api.Status) {
	address := "100.64." + strconv.FormatInt(d.Created/250%250, 10) + "." + strconv.FormatInt(d.Created%250+1, 10)
	status.MagicDNSName = d.Ingress.Hostname + "." + BaseDomain
	status.Addresses = []string{address}
	status.ServedHosts = d.Ingress.Hosts
	status.EndpointAddresses = map[string]string{}
	for name, e := range d.Ingress.Endpoints {
		status.EndpointAddresses[name] = net.JoinHostPort(address, strconv.FormatInt(e.Port, 10))
	}
	if len(d.Ingress.Certificates) > 0 {
		status.TLSNotAfter = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
}

// plain seals nothing: the store is in memory.
type plain struct{}

func (plain) Seal(_ string, text []byte) []byte              { return text }
func (plain) Unseal(_ string, sealed []byte) ([]byte, error) { return sealed, nil }
