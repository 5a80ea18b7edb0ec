package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/registry"
	"github.com/posterndev/terraform-provider-postern/internal/server"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
	"github.com/posterndev/terraform-provider-postern/internal/store"
)

type plain struct{}

func (plain) Seal(_ string, text []byte) []byte              { return text }
func (plain) Unseal(_ string, sealed []byte) ([]byte, error) { return sealed, nil }

func newServer(t *testing.T) (*server.Server, store.Store) {
	t.Helper()
	s := store.Memory()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.New(server.Config{
		Registry: registry.New(s, plain{}, nil), Tokens: server.NewTokens(s), Log: slog.New(slog.DiscardHandler),
		Info: api.Info{API: api.Version, Agent: "test"}, Metrics: http.NotFoundHandler(),
	}), s
}

type request struct {
	method, path, body string
	header             map[string]string
}

func (q request) to(h http.Handler) *httptest.ResponseRecorder {
	r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const issuerSpec = `{"name":"apps","ca":{"create":true}}`

var create = map[string]string{"If-None-Match": "*"}

func TestRefusals(t *testing.T) {
	s, _ := newServer(t)
	for name, c := range map[string]struct {
		request
		kind error
		text string
	}{
		"unknown field of the spec": {request{"PUT", "/v1/issuer/-/apps", `{"spec":{"name":"apps","vault":{}}}`, create},
			api.ErrInvalid, `field "vault" is not known to this version`},
		"unknown field of the envelope": {request{"PUT", "/v1/issuer/-/apps", `{"spec":` + issuerSpec + `,"force":true}`, create},
			api.ErrInvalid, `unknown field "force"`},
		"two documents": {request{"PUT", "/v1/issuer/-/apps", `{"spec":` + issuerSpec + `}{}`, create},
			api.ErrInvalid, "more than one JSON document"},
		"no guard": {request{"PUT", "/v1/issuer/-/apps", `{"spec":` + issuerSpec + `}`, nil},
			api.ErrInvalid, "either If-None-Match: * or If-Match"},
		"bad guard": {request{"PUT", "/v1/issuer/-/apps", `{"spec":` + issuerSpec + `}`, map[string]string{"If-Match": "seven"}},
			api.ErrInvalid, "an entity tag is a revision in quotes"},
		"another name in the path": {request{"PUT", "/v1/issuer/-/others", `{"spec":` + issuerSpec + `}`, create},
			api.ErrInvalid, "the path says issuer others and the spec issuer apps"},
		"bad value": {request{"PUT", "/v1/issuer/-/apps", `{"spec":{"name":"apps"}}`, create},
			api.ErrUnacceptable, "issuer apps is refused"},
		"too large": {request{"PUT", "/v1/issuer/-/apps", `{"spec":"` + strings.Repeat("x", api.MaxBody) + `"}`, create},
			api.ErrTooLarge, "at most 1048576 bytes"},
		"no such kind": {request{"GET", "/v1/certificate/-/apps", "", nil}, api.ErrInvalid, `kind "certificate": there is no such kind; there are issuer, tailnet, ingress`},
		"bad name":     {request{"GET", "/v1/issuer/-/Apps", "", nil}, api.ErrInvalid, "lower-case letters"},
		"absent":       {request{"GET", "/v1/issuer/-/apps", "", nil}, api.ErrNotFound, "there is no issuer apps"},
		"no such path": {request{"POST", "/v2/issuer", "", nil}, api.ErrNotFound, "there is no such resource"},
		"bad timeout":  {request{"GET", "/v1/issuer/-/apps?wait=Ready&timeout=soon", "", nil}, api.ErrInvalid, "a number of seconds"},
		"another version": {request{"GET", api.PathVersion, "", map[string]string{api.VersionHeader: "2"}},
			api.ErrVersion, "bring both to the same release"},
		"unknown secret": {request{"PUT", "/v1/issuer/-/apps", `{"spec":` + issuerSpec + `,"secrets":{"x":"y"}}`, create}, api.ErrInvalid, `has no secret "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.to(s.Local())
			err := api.DecodeError(w.Code, w.Body.Bytes())
			if w.Code < 400 || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("status %d: %v", w.Code, err)
			}
		})
	}
}

func TestFieldsSurviveTheWire(t *testing.T) {
	s, _ := newServer(t)
	w := request{"PUT", "/v1/issuer/-/apps", `{"spec":{"name":"apps","ca":{"certificate_file":"ca.pem","key_file":"/k"}}}`, create}.to(s.Local())
	var e *api.Error
	if err := api.DecodeError(w.Code, w.Body.Bytes()); !errors.As(err, &e) || len(e.Fields) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	want := `ca.certificate_file: "ca.pem": a file on the agent's host is named by an absolute path; start it with /`
	if got := e.Fields[0].Error(); got != want {
		t.Fatalf("got %s", got)
	}
}

// The table of sentinels leads each to a status and back to itself.
func TestSentinelsSurviveTheWire(t *testing.T) {
	for _, kind := range []error{
		api.ErrInvalid, api.ErrUnauthorized, api.ErrForbidden, api.ErrNotFound, api.ErrExists, api.ErrConflict, api.ErrInUse,
		api.ErrDeleting, api.ErrMoved, api.ErrTooLarge, api.ErrUnacceptable, api.ErrVersion, api.ErrBusy, api.ErrUnavailable,
	} {
		status, body := api.EncodeError(&api.Error{Kind: kind, Message: "why"})
		if got := api.DecodeError(status, body); !errors.Is(got, kind) || got.Error() != "why" {
			t.Errorf("%v became %v", kind, got)
		}
	}
	if err := api.DecodeError(http.StatusBadGateway, []byte("<html>nginx</html>")); !errors.Is(err, api.ErrUnavailable) || !strings.Contains(err.Error(), "nginx") {
		t.Errorf("a proxy's page: %v", err)
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db := newServer(t)
		tokens := server.NewTokens(db)
		token, err := tokens.Create(t.Context(), "ci", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		get := func(secret string) int {
			return request{"GET", api.PathSnapshot, "", map[string]string{"Authorization": "Bearer " + secret}}.to(s.Remote()).Code
		}
		entries, _, err := db.List(t.Context(), "tokens/")
		if err != nil || len(entries) != 1 || strings.Contains(string(entries[0].Value), token.Secret) {
			t.Fatalf("the secret is at rest: %s %v", entries[0].Value, err)
		}
		if code := get(token.Secret); code != http.StatusOK {
			t.Errorf("a good token: %d", code)
		}
		for _, secret := range []string{"", "x", token.Secret[:len(token.Secret)-1] + "g", "postern_../../objects_x"} {
			if code := get(secret); code != http.StatusUnauthorized {
				t.Errorf("%q: %d", secret, code)
			}
		}
		if w := (request{"POST", api.PathTokens, `{"name":"x","ttl_seconds":60}`, map[string]string{"Authorization": "Bearer " + token.Secret}}).to(s.Remote()); w.Code != http.StatusForbidden {
			t.Errorf("a token makes tokens: %d", w.Code)
		}
		if w := (request{"GET", api.PathHealth, "", nil}).to(s.Remote()); w.Code != http.StatusOK {
			t.Errorf("health without a token: %d", w.Code)
		}
		if w := (request{"GET", api.PathMetrics, "", nil}).to(s.Remote()); w.Code != http.StatusUnauthorized {
			t.Errorf("metrics without a token: %d", w.Code)
		}
		time.Sleep(time.Hour)
		if _, err := tokens.Check(t.Context(), token.Secret); !errors.Is(err, api.ErrUnauthorized) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("an expired token: %v", err)
		}
		if err := tokens.Revoke(t.Context(), token.ID); err != nil {
			t.Error(err)
		}
		if err := tokens.Revoke(t.Context(), token.ID); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("revoking twice: %v", err)
		}
	})
}

func TestWaitingEndsWhenTheConditionHoldsAndNotBefore(t *testing.T) {
	s := servertest.Start(t)
	s.AutoReady(false)
	key := desired.Key{Kind: desired.KindIssuer, Namespace: desired.NoNamespace, Name: "apps"}
	d, err := s.Client.Create(t.Context(), key, api.Declaration{Spec: json.RawMessage(issuerSpec)})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	last, err := s.Client.WaitFor(short, key, desired.Ready, d.Revision)
	if !errors.Is(err, context.DeadlineExceeded) || last == nil || last.Ready().Status != desired.False {
		t.Fatalf("%+v %v", last, err)
	}
	s.AutoReady(true)
	if last, err = s.Client.WaitFor(t.Context(), key, desired.Ready, d.Revision); err != nil || last.Ready().Status != desired.True {
		t.Fatalf("%+v %v", last, err)
	}
}

func TestEventsTellEachChangeLast(t *testing.T) {
	s := servertest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	key := desired.Key{Kind: desired.KindIssuer, Namespace: desired.NoNamespace, Name: "apps"}
	started, told, ended := make(chan struct{}), make(chan struct{}), errors.New("seen what was to be seen")
	seen := make(chan error, 1)
	go func() {
		ready := false
		first := true
		seen <- s.Client.Events(ctx, func(e api.Event) error {
			if first && e.Key.Name == "probe" {
				first = false
				close(started)
			}
			switch {
			case e.Key != key:
			case e.Deleted && ready:
				return ended
			case !ready && e.Document != nil && e.Document.Ready().Status == desired.True:
				ready = true
				close(told)
			}
			return nil
		})
	}()
	// The stream has begun once it tells of a change.
	probe := desired.Key{Kind: desired.KindIssuer, Namespace: desired.NoNamespace, Name: "probe"}
	for n := 0; ; n++ {
		if _, err := s.Client.Create(ctx, probe, api.Declaration{Spec: json.RawMessage(`{"name":"probe","ca":{"create":true}}`)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Client.Delete(ctx, probe); err != nil {
			t.Fatal(err)
		}
		select {
		case <-started:
		case <-time.After(20 * time.Millisecond):
			continue
		}
		break
	}
	d, err := s.Client.Create(ctx, key, api.Declaration{Spec: json.RawMessage(issuerSpec)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.WaitFor(ctx, key, desired.Ready, d.Revision); err != nil {
		t.Fatal(err)
	}
	// The stream may join what follows with what it has not told yet, so it has to have told of readiness first.
	select {
	case <-told:
	case <-ctx.Done():
		t.Fatal("the stream does not tell that the object is ready")
	}
	if err := s.Client.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; !errors.Is(err, ended) {
		t.Fatal(err)
	}
}

func TestClientRefusesWhatIsNoAgent(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:8443":     "never reached over plain TCP",
		"tcp://x":                   "the scheme is unix:// or https://",
		"unix://run/postern.sock":   "an absolute path",
		"https://agent.example":     "a token is needed",
		"https://agent.example/api": "without a path",
	} {
		if _, err := api.NewClient(api.Options{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	c, err := api.NewClient(api.Options{Endpoint: "unix:///nowhere/at/all"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.Info(ctx); !errors.Is(err, api.ErrUnavailable) || !strings.Contains(err.Error(), "unix:///nowhere/at/all") {
		t.Errorf("no agent there: %v", err)
	}
}
