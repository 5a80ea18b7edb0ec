package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

const (
	kindIngress = "postern_ingress"
	kindTailnet = "postern_tailnet"
)

// A wait that runs out on an update lists what is false, keeps the state, and the next plan waits again; once the agent
// is done on its own, a refresh knows, and there is nothing left to do (R4).
func TestWaitRunsOutOnUpdate(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	in := shop("shop")
	c.mustApply(kindIngress, addrIngress, c.ingress(in))
	in.RedirectHTTP = ptr(true)
	config := c.ingress(in)
	s.AutoReady(false)
	promised := c.open().mustPlan(kindIngress, addrIngress, config)
	wantError(t, c.open().apply(promised, config), "ingress default/shop is not ready", "Registered is False, ControlPlaneAway", "start it",
		"The next apply waits again; nothing is replaced")
	again := c.open().mustPlan(kindIngress, addrIngress, config)
	if attribute(t, again.value, "ready").IsKnown() || len(again.replaces) > 0 {
		t.Errorf("the next plan does not wait again: %s", dump(again.value))
	}
	wantError(t, c.open().apply(again, config), "is not ready")
	s.AutoReady(true)
	wait(t, "readiness", func() bool { d := document(t, s, "shop"); return d.Ready().Status == desired.True })
	p := c.open()
	if _, err := p.refresh(kindIngress, addrIngress); err != nil {
		t.Fatal(err)
	}
	if out := p.mustPlan(kindIngress, addrIngress, config); !out.value.Equal(c.states[addrIngress].value) {
		t.Errorf("the plan after the agent was done is not empty: %s", dump(out.value))
	}
}

// A tainted ingress is taken over by its replacement, truly deleted by a destroy, and truly replaced where that is meant.
func TestTaintedIsTakenOver(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	config := c.ingress(shop("shop"))
	s.AutoReady(false)
	promised := c.open().mustPlan(kindIngress, addrIngress, config)
	wantError(t, c.open().apply(promised, config), "is not ready", "tainted", "untaint")
	if !c.states[addrIngress].tainted {
		t.Fatal("the harness does not taint")
	}
	created := document(t, s, "shop").Created
	in := shop("shop")
	in.RedirectHTTP = ptr(true) // mended meanwhile
	config = c.ingress(in)
	s.AutoReady(true)
	promised = c.open().mustPlan(kindIngress, addrIngress, config)
	wantWarning(t, promised, "exists already", "tainted", "the device and its addresses stay")
	if err := c.open().apply(promised, config); err != nil {
		t.Fatal(err)
	}
	if d := document(t, s, "shop"); d.Created != created || !strings.Contains(string(d.Spec), "redirect_http") {
		t.Errorf("created at %d, then at %d with %s", created, d.Created, d.Spec)
	}

	in.Namespace = ptr("default") // the same by another word: in place
	if out := c.open().mustPlan(kindIngress, addrIngress, c.ingress(in)); len(out.replaces) > 0 {
		t.Errorf("the default namespace, written out, replaces the ingress: %v", out.replaces)
	}
	in.Namespace = nil
	in.Tailnet = "corp2" // the same key: a replacement that is meant
	second := corp()
	second.Name = "corp2"
	declare(t, s.Client, second)
	c.mustApply(kindIngress, addrIngress, c.ingress(in))
	if d := document(t, s, "shop"); d.Created == created {
		t.Error("an ingress that moves to another tailnet kept its device")
	}
	state := c.states[addrIngress]
	state.tainted = true
	c.states[addrIngress] = state
	if err := c.open().destroy(kindIngress, addrIngress); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.Get(t.Context(), desired.Key{Kind: desired.KindIngress, Namespace: "default", Name: "shop"}); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a destroy of a tainted ingress left it: %v", err)
	}
}

// A deletion that takes too long says what it waits for and is waited for by the next; what the agent is ending is created
// anew once it is gone (P11).
func TestDeletionTakesLong(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	config := c.ingress(shop("shop"))
	c.mustApply(kindIngress, addrIngress, config)
	created := document(t, s, "shop").Created
	s.AutoReady(false)
	wantError(t, c.open().destroy(kindIngress, addrIngress), "ingress default/shop is not gone yet", "timeouts.delete", "waits for it again")
	p := c.open()
	if _, err := p.refresh(kindIngress, addrIngress); err != nil || c.states[addrIngress].value.IsNull() {
		t.Fatalf("the ingress left the state before it was gone: %v", err)
	}
	out := p.mustPlan(kindIngress, addrIngress, config)
	if len(out.replaces) == 0 {
		t.Fatal("what is ending is not planned anew")
	}
	s.AutoReady(true)
	if err := c.open().apply(out, config); err != nil {
		t.Fatal(err)
	}
	if document(t, s, "shop").Created == created {
		t.Error("it is still the old one")
	}
}

// Creating what exists says how to import it; changing what another changed, or what comes to other names than planned, is
// refused and says so (T4, T8).
func TestRaces(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	c := newCore(t, s.Endpoint, "test")
	config := c.ingress(shop("shop"))
	promised := c.open().mustPlan(kindIngress, addrIngress, config)
	declare(t, s.Client, shop("shop"))
	wantError(t, c.open().apply(promised, config), "Creating ingress default/shop", "exists already",
		"terraform import postern_ingress.shop default/shop", "import {", `id = "default/shop"`)

	config = c.ingress(shop("b"))
	c.mustApply(kindIngress, "postern_ingress.b", config)
	changed := shop("b")
	changed.RedirectHTTP = ptr(true)
	spec, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	mine := shop("b")
	mine.Hostname = ptr("bb")
	p := c.open()
	final := p.mustPlan(kindIngress, "postern_ingress.b", c.ingress(mine))
	d := document(t, s, "b")
	if _, err := s.Client.Update(t.Context(), d.Key, api.Declaration{Spec: spec}, d.Revision); err != nil {
		t.Fatal(err)
	}
	state := c.states["postern_ingress.b"]
	wantError(t, p.change(kindIngress, "postern_ingress.b", final.value, final.private, c.ingress(mine), state),
		"Updating ingress default/b", "changed", "Plan again")

	p = c.open()
	config = c.ingress(shop("c"))
	final = p.mustPlan(kindIngress, "postern_ingress.c", config)
	moveTailnet(t, s, "{name}.moved.test")
	wantError(t, p.change(kindIngress, "postern_ingress.c", final.value, final.private, config, kept{value: tftypes.NewValue(c.types[kindIngress], nil)}),
		"dns_name was planned as", "c.zone.test", "c.moved.test", "Plan again")
}

func moveTailnet(t *testing.T, s *servertest.Server, template string) {
	t.Helper()
	d, err := s.Client.Get(t.Context(), corp().Key())
	if err != nil {
		t.Fatal(err)
	}
	moved := corp()
	moved.DNS.IngressNameTemplate = &template
	spec, err := json.Marshal(moved)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.Update(t.Context(), d.Key, api.Declaration{Spec: spec}, d.Revision); err != nil {
		t.Fatal(err)
	}
}

// The secret is in no plan and no state, and it is sent where the tailnet is new or its version changes, and otherwise not.
func TestSecrets(t *testing.T) {
	s := servertest.Start(t)
	declare(t, s.Client, &desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}})
	c := newCore(t, s.Endpoint, "test")
	config := func(secret string, version int64, url string) tftypes.Value {
		o := corp()
		o.Headscale = &desired.Headscale{URL: url, APIKeyVersion: &version}
		v := c.config(kindTailnet, o, nil)
		out, err := tftypes.Transform(v, func(p *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
			if steps := p.Steps(); len(steps) == 2 && steps[1] == tftypes.AttributeName("api_key_wo") {
				return tftypes.NewValue(tftypes.String, secret), nil
			}
			return v, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, step := range []struct {
		secret  string
		version int64
		url     string
		want    string
	}{
		{"first-secret", 1, "https://one.test", "first-secret"},
		{"second-secret", 1, "https://one.test", "first-secret"},
		{"second-secret", 1, "https://two.test", "first-secret"},
		{"second-secret", 2, "https://two.test", "second-secret"},
	} {
		v := config(step.secret, step.version, step.url)
		promised := c.open().mustPlan(kindTailnet, addrTailnet, v)
		if err := c.open().apply(promised, v); err != nil {
			t.Fatal(err)
		}
		got, err := s.Registry.Secret(t.Context(), corp().Key(), desired.SecretAPIKey)
		if err != nil || got != step.want {
			t.Errorf("with %+v the agent has %q, %v", step, got, err)
		}
		state := c.states[addrTailnet]
		for what, text := range map[string]string{
			"plan": promised.value.String(), "private plan": string(promised.private), "state": state.value.String(), "private state": string(state.private),
		} {
			if strings.Contains(text, "secret") && (strings.Contains(text, "first-secret") || strings.Contains(text, "second-secret")) {
				t.Errorf("the %s has the secret: %s", what, text)
			}
		}
	}
}

// A write whose answer is lost is looked for at the agent, and its apply goes on (T4).
func TestAnswerLost(t *testing.T) {
	s := servertest.Start(t)
	base(t, s)
	lose := new(atomic.Bool)
	c := newCore(t, lossy(t, s, lose), "test")
	in := shop("shop")
	config := c.ingress(in)
	promised := c.open().mustPlan(kindIngress, addrIngress, config)
	lose.Store(true)
	if err := c.open().apply(promised, config); err != nil {
		t.Fatalf("a creation whose answer was lost: %v", err)
	}
	in.RedirectHTTP = ptr(true)
	config = c.ingress(in)
	promised = c.open().mustPlan(kindIngress, addrIngress, config)
	lose.Store(true)
	if err := c.open().apply(promised, config); err != nil {
		t.Fatalf("an update whose answer was lost: %v", err)
	}
	if lose.Load() {
		t.Error("nothing was lost")
	}
}

// lossy is an endpoint before the server's that loses the answer to one PUT each time lose is set.
func lossy(t *testing.T, s *servertest.Server, lose *atomic.Bool) string {
	t.Helper()
	socket := filepath.Join(filepath.Dir(strings.TrimPrefix(s.Endpoint, "unix://")), "l")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "postern"})
	proxy.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(s.Endpoint, "unix://"))
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && lose.CompareAndSwap(true, false) {
			proxy.ServeHTTP(&nowhere{header: http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return "unix://" + socket
}

// nowhere takes an answer and drops it.
type nowhere struct {
	header http.Header
	body   bytes.Buffer
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return n.body.Write(b) }
func (n *nowhere) WriteHeader(int)             {}
