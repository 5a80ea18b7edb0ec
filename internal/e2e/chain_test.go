package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// chain is a Headscale, an agent, and what is declared on it through its API.
type chain struct {
	headscale *testbed.Headscale
	agent     *testbed.Agent
	dir       string
}

func ptr[T any](v T) *T { return &v }

// startChain runs a chain with an issuer "apps" and a tailnet "corp".
func startChain(t *testing.T) *chain {
	t.Helper()
	c := &chain{dir: shortDir(t)}
	ctx := deadline(t, 2*time.Minute)
	for _, name := range []string{"hs", "agent"} {
		if err := os.Mkdir(filepath.Join(c.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if c.headscale, err = testbed.StartHeadscale(ctx, testbed.HeadscaleOptions{Dir: filepath.Join(c.dir, "hs")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.headscale.Stop(); err != nil {
			t.Error(err)
		}
	})
	if c.agent, err = testbed.StartAgent(ctx, built.Agent, filepath.Join(c.dir, "agent")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the agent's log:\n%s", c.agent.Tail())
		}
		if err := c.agent.Kill(); err != nil {
			t.Error(err)
		}
	})
	c.declare(t, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}}, nil)
	c.declare(t, &desired.Tailnet{
		Name: "corp", DefaultIssuer: ptr("apps"),
		Headscale: &desired.Headscale{URL: c.headscale.URL, APIKeyVersion: ptr(int64(1))},
		DNS: &desired.TailnetDNS{
			IngressNameTemplate:  ptr("{name}.{namespace}.example.internal"),
			IngressAliasTemplate: ptr("{name}.example.internal"),
		},
	}, map[string]string{desired.SecretAPIKey: c.headscale.APIKey})
	return c
}

func deadline(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func declaration(t *testing.T, o desired.Object, secrets map[string]string) api.Declaration {
	t.Helper()
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return api.Declaration{Spec: spec, Secrets: secrets}
}

// declare creates an object and waits until it is ready.
func (c *chain) declare(t *testing.T, o desired.Object, secrets map[string]string) *api.Document {
	t.Helper()
	d, err := c.agent.Client.Create(deadline(t, time.Minute), o.Key(), declaration(t, o, secrets))
	if err != nil {
		t.Fatal(err)
	}
	return c.ready(t, o.Key(), d.Revision)
}

func (c *chain) ready(t *testing.T, key desired.Key, revision int64) *api.Document {
	t.Helper()
	d, err := c.agent.Client.WaitFor(deadline(t, time.Minute), key, desired.Ready, revision)
	if err != nil {
		t.Fatalf("%s is not ready: %v: %+v", key, err, d)
	}
	return d
}

// update declares an object anew at whatever revision it is.
func (c *chain) update(t *testing.T, o desired.Object) (*api.Document, error) {
	t.Helper()
	ctx := deadline(t, time.Minute)
	old, err := c.agent.Client.Get(ctx, o.Key())
	if err != nil {
		return nil, err
	}
	return c.agent.Client.Update(ctx, o.Key(), declaration(t, o, nil), old.Revision)
}

// laptop is a peer whom every ingress that allows members lets in.
func (c *chain) laptop(t *testing.T) *testbed.Peer {
	t.Helper()
	ctx := deadline(t, time.Minute)
	user, err := c.headscale.CreateUser(ctx, "dev")
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.headscale.AuthKey(ctx, user)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := testbed.StartPeer(ctx, c.headscale, "laptop", key, filepath.Join(c.dir, "laptop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
	})
	return peer
}

// client gives an HTTP client of a peer that resolves every name to an ingress.
func (c *chain) client(t *testing.T, peer *testbed.Peer, d *api.Document) *http.Client {
	t.Helper()
	issuer, err := c.agent.Client.Get(deadline(t, time.Minute), desired.Key{Kind: desired.KindIssuer, Namespace: desired.NoNamespace, Name: "apps"})
	if err != nil {
		t.Fatal(err)
	}
	client := peer.HTTPClient(d.Status.Addresses[0], issuer.Status.CertificatePEM)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func backend(t *testing.T, start func() (*testbed.Backend, error)) *testbed.Backend {
	t.Helper()
	b, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func httpBackend(t *testing.T, name string) *testbed.Backend {
	t.Helper()
	return backend(t, func() (*testbed.Backend, error) { return testbed.StartHTTP(name) })
}

func tcpExpose(port int64, target string) desired.Expose {
	return desired.Expose{Port: ptr(port), Backend: desired.Backend{Targets: []string{target}}}
}

func httpExpose(target string) desired.Expose {
	return desired.Expose{Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{target}}}
}

func memberIngress(name string, exposes map[string]desired.Expose) *desired.Ingress {
	return &desired.Ingress{Name: name, Tailnet: "corp", AllowFrom: []string{"autogroup:member"}, Exposes: exposes}
}

// reaches asks a URL until its backend answers.
func reaches(t *testing.T, client *http.Client, url, backend string) {
	t.Helper()
	ctx := deadline(t, time.Minute)
	err := testbed.Eventually(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var seen testbed.Seen
		if err := json.NewDecoder(answer.Body).Decode(&seen); err != nil {
			return fmt.Errorf("%s: %s: %w", url, answer.Status, err)
		}
		if seen.Backend != backend {
			return fmt.Errorf("%s is answered by %q", url, seen.Backend)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
