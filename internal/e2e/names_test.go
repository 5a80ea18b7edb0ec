package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// randomIngresses is how many ingresses are tried, each a node of its own.
const randomIngresses = 10

// randomIngress has one to four hosts, with and without labels and aliases, on its own name or not.
func randomIngress(r *rand.Rand, n int, target string) *desired.Ingress {
	in := memberIngress(fmt.Sprintf("app%d", n), map[string]desired.Expose{})
	in.Namespace = ptr([]string{"default", "team-a", "b"}[r.IntN(3)])
	if r.IntN(3) == 0 {
		in.TLS = &desired.IngressTLS{Layout: ptr(desired.LayoutSingle)}
	}
	for i := range 1 + r.IntN(4) {
		e := httpExpose(target)
		if i > 0 || r.IntN(2) == 0 {
			e.DNSLabel = ptr(fmt.Sprintf("h%d-%d", n, i))
		}
		if r.IntN(2) == 0 {
			e.Alias = ptr(true)
		}
		in.Exposes[fmt.Sprintf("e%d", i)] = e
	}
	return in
}

// The names that a plan shows are what a peer can reach and what the certificates cover, and nothing else is (N1-N5, X4, X5).
func TestPlannedNamesAreServedAndNoOthers(t *testing.T) {
	c := startChain(t)
	web := httpBackend(t, "web")
	random := rand.New(rand.NewPCG(3, 4))
	var declared []*desired.Ingress
	planned := map[desired.Key]*api.PlanResponse{}
	for n := range randomIngresses {
		in := randomIngress(random, n, web.Address)
		plan, err := c.agent.Client.Plan(deadline(t, time.Minute), api.Change{Key: in.Key(), Declaration: declaration(t, in, nil)})
		if err != nil {
			t.Fatal(err)
		}
		planned[in.Key()] = plan
		declared = append(declared, in)
		if _, err := c.agent.Client.Create(deadline(t, time.Minute), in.Key(), declaration(t, in, nil)); err != nil {
			t.Fatal(err)
		}
	}
	peer := c.laptop(t)
	issuer, err := c.agent.Client.Get(deadline(t, time.Minute), desired.Key{Kind: desired.KindIssuer, Namespace: desired.NoNamespace, Name: "apps"})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range declared {
		d := c.ready(t, in.Key(), 0)
		plan := planned[in.Key()].Ingresses[in.Key().Path()]
		if plan == nil || !slices.Equal(plan.Hosts, d.Ingress.Hosts) || !slices.Equal(plan.Hosts, d.Status.ServedHosts) {
			t.Errorf("%s: planned %+v, declared %v, served %v", in.Key(), plan, d.Ingress.Hosts, d.Status.ServedHosts)
			continue
		}
		names := plan.Names()
		for _, name := range append(slices.Clone(names), "other.example.internal", "app0.example.internal.evil") {
			served := slices.Contains(names, name)
			if err := handshake(t, peer, d.Status.Addresses[0], name, issuer.Status.CertificatePEM); (err == nil) != served {
				t.Errorf("%s: handshake for %s, which is planned: %v: %v", in.Key(), name, served, err)
			}
		}
		client := c.client(t, peer, d)
		for _, host := range plan.Hosts {
			reaches(t, client, "https://"+host+"/", "web")
		}
		if !slices.Contains(plan.Hosts, plan.DNSName) {
			withoutRoute(t, client, plan.DNSName, plan.Hosts)
		}
	}
}

func handshake(t *testing.T, peer *testbed.Peer, address, name, rootsPEM string) error {
	t.Helper()
	ctx := deadline(t, time.Minute)
	var conn net.Conn
	err := testbed.Eventually(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var err error
		conn, err = peer.Dial(attempt, "tcp", net.JoinHostPort(address, "443"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(rootsPEM))
	return tls.Client(conn, &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
}

// withoutRoute checks what a certificate name without a route answers with (X5).
func withoutRoute(t *testing.T, client *http.Client, name string, hosts []string) {
	t.Helper()
	answer, err := client.Get("https://" + name + "/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(hosts) == 1 {
		if got := answer.Header.Get("Location"); answer.StatusCode != http.StatusPermanentRedirect || got != "https://"+hosts[0]+"/a?b=c" {
			t.Errorf("%s: %s to %s", name, answer.Status, got)
		}
		return
	}
	for _, host := range hosts {
		if answer.StatusCode != http.StatusNotFound || !strings.Contains(string(body), "https://"+host) {
			t.Errorf("%s: %s without %s:\n%s", name, answer.Status, host, body)
		}
	}
}
