package session_test

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
	"github.com/posterndev/terraform-provider-postern/provider/internal/session"
)

func intent(o desired.Object) session.Intent {
	return session.Intent{Object: o, Changes: true, Unknown: func(desired.Path) bool { return false }}
}

func issuer(name string) *desired.Issuer {
	yes := true
	return &desired.Issuer{Name: name, CA: &desired.CAIssuer{Create: &yes}}
}

// agent answers every request with an error, and counts them.
func agent(t *testing.T, err error) (*api.Client, *atomic.Int64) {
	t.Helper()
	dir, mkErr := os.MkdirTemp("", "postern") // t.TempDir is too long for a socket
	if mkErr != nil {
		t.Fatal(mkErr)
	}
	socket := filepath.Join(dir, "s")
	listener, listenErr := net.Listen("unix", socket)
	if listenErr != nil {
		t.Fatal(listenErr)
	}
	asked := new(atomic.Int64)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		status, body := api.EncodeError(err)
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	client, newErr := api.NewClient(api.Options{Endpoint: "unix://" + socket, Workspace: "test"})
	if newErr != nil {
		t.Fatal(newErr)
	}
	t.Cleanup(func() { client.Close(); _ = server.Close(); _ = os.RemoveAll(dir) })
	return client, asked
}

// An agent that refuses is an error at plan, and no agent that is away.
func TestRefusalIsNoAbsence(t *testing.T) {
	client, _ := agent(t, &api.Error{Kind: api.ErrUnauthorized, Message: "the token has expired"})
	s := session.New(client, nil)
	if _, err := s.Put(t.Context(), intent(issuer("a"))); !errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("planning gives %v", err)
	}
	if n, told := s.Away(); told {
		t.Errorf("it is said to be away: %+v", n)
	}
}

// An agent that is away is asked once, and that is told once.
func TestAbsenceIsToldOnce(t *testing.T) {
	client, asked := agent(t, &api.Error{Kind: api.ErrUnavailable, Message: "starting"})
	s := session.New(client, nil)
	told := 0
	var after int64
	for i, name := range []string{"a", "b", "c"} {
		if _, err := s.Put(t.Context(), intent(issuer(name))); err != nil {
			t.Fatal(err)
		}
		if _, news := s.Away(); news {
			told++
		}
		if i == 0 {
			after = asked.Load()
		}
	}
	if told != 1 || asked.Load() != after {
		t.Errorf("told %d times; asked %d times, %d of them for the first plan", told, asked.Load(), after)
	}
}

// Two claims to a hostname in one session are refused, and a claim that is given up frees it.
func TestClaimsOfHostnames(t *testing.T) {
	server := servertest.Start(t)
	s := session.New(server.Client, nil)
	template := "{name}.zone.test"
	tailnet := &desired.Tailnet{Name: "corp", DNS: &desired.TailnetDNS{IngressNameTemplate: &template}, Policy: &desired.TailnetPolicy{}}
	if _, err := s.Put(t.Context(), intent(tailnet)); err != nil {
		t.Fatal(err)
	}
	port := int64(1)
	ingress := func(name, hostname string) *desired.Ingress {
		return &desired.Ingress{Name: name, Tailnet: "corp", Hostname: &hostname, Exposes: map[string]desired.Expose{
			"a": {Port: &port, Backend: desired.Backend{Targets: []string{"a:1"}}},
		}}
	}
	old := ingress("old", "gate")
	if out, err := s.Put(t.Context(), intent(old)); err != nil || len(out.Errors) > 0 {
		t.Fatal(err, out)
	}
	out, err := s.Put(t.Context(), intent(ingress("rival", "gate")))
	if err != nil || len(out.Errors) != 1 {
		t.Fatalf("a rival for the hostname gives %+v, %v", out, err)
	}
	moved := intent(ingress("rival", "other"))
	key := moved.Object.Key()
	moved.Prior = &key
	if out, err := s.Put(t.Context(), moved); err != nil || len(out.Errors) > 0 {
		t.Fatalf("another hostname gives %+v, %v", out, err)
	}
}
