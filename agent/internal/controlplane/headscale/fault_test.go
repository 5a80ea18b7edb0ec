package headscale

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/policy"
)

const testKey = "hskey-api-abcdefghijkl-secretsecretsecret"

// everyCall runs all calls of a client, each of which must fail.
func everyCall(ctx context.Context, c *Client) map[string]error {
	errs := make(map[string]error)
	_, errs["Probe"] = c.Probe(ctx)
	_, errs["MintKey"] = c.MintKey(ctx, []string{"tag:x"}, time.Minute)
	_, errs["Nodes"] = c.Nodes(ctx)
	errs["DeleteNode"] = c.DeleteNode(ctx, "1")
	errs["RenameNode"] = c.RenameNode(ctx, "1", "x")
	errs["SetTags"] = c.SetTags(ctx, "1", []string{"tag:x"})
	_, errs["Policy"] = c.Policy(ctx)
	errs["CheckPolicy"] = c.CheckPolicy(ctx, []byte("{}"))
	errs["SetPolicy"] = c.SetPolicy(ctx, []byte("{}"), controlplane.Policy{})
	return errs
}

// checkCalls expects every call to fail with class, with text in it, and without the key.
func checkCalls(t *testing.T, c *Client, key string, class error, text string) {
	t.Helper()
	for name, err := range everyCall(t.Context(), c) {
		if !errors.Is(err, class) || !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: %v\nwant %q and %q", name, err, class, text)
		}
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), key) {
			t.Errorf("%s shows the key: %#v", name, err)
		}
	}
}

func checkProblem(t *testing.T, c *Client, id string, texts ...string) {
	t.Helper()
	f, err := c.Probe(t.Context())
	if err == nil || len(f.Problems) != 1 || f.Problems[0].ID != id {
		t.Fatalf("Probe: %v, problems %+v, want %s", err, f.Problems, id)
	}
	for _, text := range texts {
		if !strings.Contains(f.Problems[0].Detail, text) {
			t.Errorf("problem %s does not say %q: %s", id, text, f.Problems[0].Detail)
		}
	}
	if strings.Contains(fmt.Sprintf("%#v", f), testKey) {
		t.Errorf("the facts show the key: %#v", f)
	}
}

func TestWrongKey(t *testing.T) {
	noLeaks(t)
	s := startHeadscale(t, "{mode: database}")
	for _, key := range []string{testKey, "nonsense"} {
		c := newClient(t, s.url, key)
		for name, err := range everyCall(t.Context(), c) {
			if !errors.Is(err, controlplane.ErrUnauthorized) || !strings.Contains(fmt.Sprint(err), "401") || strings.Contains(fmt.Sprint(err), key) {
				t.Errorf("%s: %v", name, err)
			}
		}
		f, err := c.Probe(t.Context())
		if err == nil || f.Version == "" || len(f.Problems) != 1 || f.Problems[0].ID != controlplane.ProblemCredentials ||
			!strings.Contains(f.Problems[0].Detail, "headscale apikeys create") {
			t.Errorf("facts = %+v, %v", f, err)
		}
	}
}

func TestKeyThatCannotBeSent(t *testing.T) {
	for name, key := range map[string]func() (string, error){
		"empty":      func() (string, error) { return " \n", nil },
		"line break": func() (string, error) { return testKey + "\nX: y", nil },
		"no file":    func() (string, error) { return "", errors.New("open /etc/key: no such file") },
	} {
		c, err := New(Options{URL: "http://127.0.0.1:1", APIKey: key})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Nodes(t.Context()); !errors.Is(err, controlplane.ErrUnauthorized) || strings.Contains(err.Error(), testKey) {
			t.Errorf("%s: %v", name, err)
		}
		checkProblem(t, c, controlplane.ProblemCredentials, "headscale apikeys create")
	}
}

func TestServerDown(t *testing.T) {
	noLeaks(t)
	url := fmt.Sprintf("http://127.0.0.1:%d", freePorts(t, 1)[0])
	c := newClient(t, url, testKey)
	checkCalls(t, c, testKey, controlplane.ErrUnavailable, "connection refused")
	checkProblem(t, c, controlplane.ProblemUnreachable, url, "connection refused")
}

// fake serves what no Headscale would.
func fake(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a server notices that the client has gone only after that
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestNotHeadscale(t *testing.T) {
	noLeaks(t)
	html := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			io.WriteString(w, "<html>"+r.Header.Get("Authorization")+"</html>")
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"HTML 404": html(http.StatusNotFound),
		"HTML 200": html(http.StatusOK),
		"HTML 500": html(http.StatusInternalServerError),
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, fake(t, h), testKey)
			checkCalls(t, c, testKey, controlplane.ErrWrongServer, "text/html")
			checkProblem(t, c, controlplane.ProblemWrongServer, "server_url", c.base.String())
		})
	}
	t.Run("redirect", func(t *testing.T) {
		var methods atomic.Int32
		c := newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
			methods.Add(1)
			http.Redirect(w, r, "https://elsewhere.example/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), http.StatusMovedPermanently)
		}), testKey)
		checkCalls(t, c, testKey, controlplane.ErrWrongServer, "https://elsewhere.example/")
	})
	t.Run("other JSON", func(t *testing.T) {
		c := newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{}")
		}), testKey)
		checkProblem(t, c, controlplane.ProblemWrongServer)
		if key, err := c.MintKey(t.Context(), []string{"tag:x"}, time.Minute); !errors.Is(err, controlplane.ErrWrongServer) {
			t.Errorf("MintKey: %+v, %v", key, err)
		}
	})
	t.Run("HTTPS on a plain port", func(t *testing.T) {
		c := newClient(t, strings.Replace(fake(t, html(200)), "http:", "https:", 1), testKey)
		checkCalls(t, c, testKey, controlplane.ErrUnavailable, "HTTP response to HTTPS client")
	})
}

// TestProxyDown: the page of a proxy whose Headscale is away is no wrong server, and reading is tried again.
func TestProxyDown(t *testing.T) {
	var calls atomic.Int32
	c := newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
	}), testKey)
	if _, err := c.Nodes(t.Context()); !errors.Is(err, controlplane.ErrUnavailable) || calls.Load() != 4 {
		t.Errorf("Nodes: %v after %d requests", err, calls.Load())
	}
	calls.Store(0)
	if _, err := c.MintKey(t.Context(), []string{"tag:x"}, time.Minute); !errors.Is(err, controlplane.ErrUnavailable) || calls.Load() != 1 {
		t.Errorf("MintKey: %v after %d requests: a key must not be minted twice", err, calls.Load())
	}
}

func TestSlowServer(t *testing.T) {
	noLeaks(t)
	url := fake(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := newClient(t, url, testKey)
	c.timeout = 100 * time.Millisecond
	begin := time.Now()
	checkCalls(t, c, testKey, controlplane.ErrUnavailable, "no answer in time")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("nine calls took %s", took)
	}
	// The caller's own end is no fault of the server.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Nodes(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("cancelled: %v", err)
	}
	// An answer that begins and never ends.
	c = newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}), testKey)
	c.timeout = 100 * time.Millisecond
	if _, err := c.Nodes(t.Context()); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("half an answer: %v", err)
	}
}

func TestEndlessAnswer(t *testing.T) {
	c := newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		chunk := bytes.Repeat([]byte(" "), 1<<20)
		for range maxAnswer>>20 + 8 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}), testKey)
	if _, err := c.Nodes(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than 64 MiB") {
		t.Errorf("err = %v", err)
	}
}

func TestStatusKeepsMessage(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		class  error
		text   string
	}{
		{500, `{"code":2,"message":"the key ` + testKey + ` is odd"}`, nil, "POST /api/v1/node/7/tags: 500 Internal Server Error: the key [redacted] is odd"},
		{500, `{"code":16,"message":"no"}`, controlplane.ErrUnauthorized, "500 Internal Server Error: credentials refused: no"},
		{403, `{"code":7,"message":"no"}`, controlplane.ErrUnauthorized, "403 Forbidden"},
		{503, `{"code":14,"message":"later"}`, controlplane.ErrUnavailable, "later"},
		{404, `{"code":5,"message":"node not found"}`, controlplane.ErrNotFound, "node not found"},
		{501, `{"code":12,"message":"no"}`, controlplane.ErrUnsupported, "no"},
		{400, `{"code":3,"message":"odd tag"}`, controlplane.ErrRefused, "odd tag"},
		{422, `{"title":"Unprocessable","detail":"odd tag"}`, nil, "Unprocessable odd tag"},
	} {
		c := newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
		}), testKey)
		err := c.SetTags(t.Context(), "7", []string{"tag:x"})
		var status *controlplane.StatusError
		if !errors.As(err, &status) || status.Status != tt.status || !errors.Is(status.Class, tt.class) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%d %s: %v", tt.status, tt.body, err)
		}
	}
}

func TestCustomAuthority(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"nodes":[]}`)
	}))
	var connections atomic.Int32
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	key := func() (string, error) { return testKey, nil }
	c, err := New(Options{URL: srv.URL + "/", APIKey: key, CAPEM: ca})
	if err != nil {
		t.Fatal(err)
	}
	if nodes, err := c.Nodes(t.Context()); err != nil || len(nodes) != 0 {
		t.Errorf("with the authority: %v, %v", nodes, err)
	}
	c.CloseIdleConnections()
	c = newClient(t, srv.URL, testKey)
	connections.Store(0)
	checkProblem(t, c, controlplane.ProblemUnreachable, "unknown authority", "CA bundle")
	if n := connections.Load(); n != 1 {
		t.Errorf("a certificate that is not trusted was tried %d times", n)
	}
}

func TestNewRefuses(t *testing.T) {
	key := func() (string, error) { return testKey, nil }
	for text, o := range map[string]Options{
		"want https://host":     {URL: "headscale.example", APIKey: key},
		"want no user":          {URL: "https://me:hunter2@headscale.example", APIKey: key},
		"headscale URL: ":       {URL: "https://me:hunter2@headscale.example:x", APIKey: key},
		"API key is missing":    {URL: "https://headscale.example"},
		"no PEM certificate":    {URL: "https://headscale.example", APIKey: key, CAPEM: []byte("x")},
		"exclude each other":    {URL: "https://headscale.example", APIKey: key, CAPEM: []byte("x"), HTTPClient: new(http.Client)},
		`"ftp://x": want https`: {URL: "ftp://x", APIKey: key},
	} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("err = %v, want %q", err, text)
		}
	}
}

func TestProbe(t *testing.T) {
	s := startHeadscale(t, "{mode: database}")
	c, ctx := s.client(), t.Context()
	for _, in := range []map[string]string{{"name": "ops", "email": "ops@example.test"}, {"name": "eve"}} {
		if _, err := c.call(ctx, "POST", "/api/v1/user", in, nil); err != nil {
			t.Fatal(err)
		}
	}
	f, err := c.Probe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := controlplane.Facts{
		Kind: "headscale", Version: "v0.29.2", PolicyMode: controlplane.PolicyDatabase, PolicyWritable: true,
		Names: policy.Names{AllowsAll: true}, Users: []string{"eve@", "ops@", "ops@example.test"}, Lacks: lacks(),
	}
	if d := cmp.Diff(want, f); d != "" {
		t.Errorf("facts (-want +got):\n%s", d)
	}
	if err := c.SetPolicy(ctx, []byte(first), controlplane.Policy{}); err != nil {
		t.Fatal(err)
	}
	if f, err := c.Probe(ctx); err != nil || len(f.Problems) > 0 || len(f.Names.Tags) != 1 {
		t.Errorf("facts = %+v, %v", f, err)
	}
}

func TestProbeJudges(t *testing.T) {
	for _, tt := range []struct {
		version, id, text string
		date              time.Duration
	}{
		{"v0.28.0", controlplane.ProblemVersion, "Upgrade Headscale", 0},
		{"0.29.0", "", "", 0},
		{"v0.29.2-3-gabc", "", "", 3 * time.Second},
		{"v0.30.0", controlplane.ProblemVersion, "Upgrade Postern", 0},
		{"v1.0.0", controlplane.ProblemVersion, "Upgrade Postern", 0},
		{"dev", controlplane.ProblemVersion, `reports version "dev"`, 0},
		{"v0.29.2", controlplane.ProblemClock, "NTP", 5 * time.Minute},
		{"v0.29.2", controlplane.ProblemClock, "is -5m0s ahead", -5*time.Minute - time.Second},
	} {
		c := newClient(t, fake(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Date", time.Now().Add(tt.date).UTC().Format(http.TimeFormat))
			json.NewEncoder(w).Encode(map[string]any{"version": tt.version, "policy": "{}", "updatedAt": time.Now()})
		}), testKey)
		f, err := c.Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case tt.id == "" && len(f.Problems) != 0:
			t.Errorf("%s: %+v", tt.version, f.Problems)
		case tt.id != "" && (len(f.Problems) != 1 || f.Problems[0].ID != tt.id || !strings.Contains(f.Problems[0].Detail, tt.text)):
			t.Errorf("%s: %+v, want %s saying %q", tt.version, f.Problems, tt.id, tt.text)
		}
	}
	c := newClient(t, "http://headscale.invalid", testKey)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is to be sent
	if f, _ := c.Probe(ctx); f.Problems[0].ID != controlplane.ProblemPlainHTTP {
		t.Errorf("problems = %+v", f.Problems)
	}
}

func TestLogHasNoKey(t *testing.T) {
	var log bytes.Buffer
	c, err := New(Options{
		URL: fake(t, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.Header.Get("Authorization"), http.StatusUnauthorized)
		}),
		APIKey: func() (string, error) { return testKey, nil },
		Log:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	everyCall(t.Context(), c)
	if !strings.Contains(log.String(), "/api/v1/node") || strings.Contains(log.String(), testKey) {
		t.Errorf("log:\n%s", log.String())
	}
}
