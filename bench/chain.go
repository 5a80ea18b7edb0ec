package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

const (
	// patience bounds a step.
	patience = 3 * time.Minute
	// settle is how long an idle process is left alone before it is looked at.
	settle = 5 * time.Second
	// closeLimit is how long a node may take to close.
	closeLimit = 10 * time.Second
	// bodySize is what the web server answers with.
	bodySize = 1024
	// bulkPort is the shop's, and the bare nodes'.
	bulkPort = "5001"
)

// policy lets the load reach the bare nodes; what it may reach of ours the agent adds.
const policy = `{
	"tagOwners": {"tag:bare": []},
	"grants": [{"src": ["autogroup:member"], "dst": ["tag:bare"], "ip": ["*"]}],
}
`

// chain is a Headscale, an agent with one ingress, a bare node that does the same, and the load.
type chain struct {
	dir       string
	headscale *testbed.Headscale
	agent     *testbed.Agent
	load      *load
	bare      *bareNode
	sink, web string // addresses of the backends
	bareKey   string
	ingress   *api.Document
	caPEM     string
	closes    []func()
}

func ptr[T any](v T) *T { return &v }

func (c *chain) close() {
	for i := len(c.closes) - 1; i >= 0; i-- {
		c.closes[i]()
	}
}

func newChain(ctx context.Context, dir string) (*chain, error) {
	c := &chain{dir: dir}
	for _, name := range []string{"hs", "agent"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return c, fmt.Errorf("making a folder: %w", err)
		}
	}
	root, err := testbed.Root()
	if err != nil {
		return c, err
	}
	if c.headscale, err = testbed.StartHeadscale(ctx, testbed.HeadscaleOptions{Dir: filepath.Join(dir, "hs")}); err != nil {
		return c, err
	}
	c.closes = append(c.closes, func() { _ = c.headscale.Stop() }) // the bench is over
	if err := c.headscale.SetPolicy(ctx, policy); err != nil {
		return c, err
	}
	if c.bareKey, err = c.headscale.AuthKey(ctx, "", "tag:bare"); err != nil {
		return c, err
	}
	if err := c.startBackends(); err != nil {
		return c, err
	}
	if c.agent, err = testbed.StartAgent(ctx, filepath.Join(root, "bin", "postern"), filepath.Join(dir, "agent"), "log_level: info"); err != nil {
		return c, err
	}
	c.closes = append(c.closes, func() { _ = c.agent.Kill() }) // the bench is over
	return c, c.join(ctx)
}

// join declares the ingress, starts the bare node, and brings the load onto the tailnet.
func (c *chain) join(ctx context.Context) error {
	objects := []desired.Object{
		&desired.Issuer{Name: "apps", CA: &desired.CAIssuer{Create: ptr(true)}},
		&desired.Tailnet{
			Name: "corp", DefaultIssuer: ptr("apps"), Headscale: &desired.Headscale{URL: c.headscale.URL, APIKeyVersion: ptr(int64(1))},
			DNS: &desired.TailnetDNS{IngressNameTemplate: ptr("{name}.{namespace}.example.internal")},
		},
		c.shop(nil),
	}
	for _, o := range objects {
		var secrets map[string]string
		if o.Key().Kind == desired.KindTailnet {
			secrets = map[string]string{desired.SecretAPIKey: c.headscale.APIKey}
		}
		d, err := c.declare(ctx, o, secrets)
		if err != nil {
			return err
		}
		if o.Key().Kind == desired.KindIssuer {
			c.caPEM = d.Status.CertificatePEM
		}
		c.ingress = d
	}
	user, err := c.headscale.CreateUser(ctx, "load")
	if err != nil {
		return err
	}
	key, err := c.headscale.AuthKey(ctx, user)
	if err != nil {
		return err
	}
	server, err := bringUp(ctx, c.headscale.URL, key, "load", filepath.Join(c.dir, "load"))
	if err != nil {
		return err
	}
	c.load = &load{server: server} // crowded nodes may not close: it ends with this process
	if c.bare, err = startBare(ctx); err != nil {
		return err
	}
	c.closes = append(c.closes, c.bare.stop)
	if err := c.bare.up(c, "bare", 1, 0); err != nil {
		return err
	}
	// What comes first waits for paths and handshakes.
	for _, s := range []side{c.ours(), c.bare.side()} {
		if _, err := c.firstAnswer(ctx, s, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// ours is the shop as clients know it.
func (c *chain) ours() side {
	return side{address: c.ingress.Status.Addresses[0], host: "shop.default.example.internal", roots: c.caPEM}
}

// shop is the ingress, with more http exposes by their labels.
func (c *chain) shop(labels []string) *desired.Ingress {
	in := &desired.Ingress{Name: "shop", Tailnet: "corp", AllowFrom: []string{"autogroup:member"}, Exposes: map[string]desired.Expose{
		"bulk": {Port: ptr(int64(5001)), Backend: desired.Backend{Targets: []string{c.sink}}},
		"web":  {Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{c.web}}},
	}}
	for _, label := range labels {
		in.Exposes[label] = desired.Expose{Mode: ptr(desired.ModeHTTP), DNSLabel: ptr(label), Backend: desired.Backend{Targets: []string{c.web}}}
	}
	return in
}

// declare creates an object and waits until it is ready.
func (c *chain) declare(ctx context.Context, o desired.Object, secrets map[string]string) (*api.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	declared, err := declaration(o, secrets)
	if err != nil {
		return nil, err
	}
	d, err := c.agent.Client.Create(ctx, o.Key(), declared)
	if err != nil {
		return nil, err
	}
	return c.agent.Client.WaitFor(ctx, o.Key(), desired.Ready, d.Revision)
}

func declaration(o desired.Object, secrets map[string]string) (api.Declaration, error) {
	spec, err := json.Marshal(o)
	if err != nil {
		return api.Declaration{}, fmt.Errorf("encoding %s: %w", o.Key(), err)
	}
	return api.Declaration{Spec: spec, Secrets: secrets}, nil
}

// startBackends starts a sink, which says when all was read, and a web server.
func (c *chain) startBackends() error {
	sink, sinkErr := net.Listen("tcp", "127.0.0.1:0")
	web, webErr := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(sinkErr, webErr); err != nil {
		return fmt.Errorf("starting backends: %w", err)
	}
	go accept(sink, func(conn net.Conn) {
		if _, err := io.Copy(io.Discard, conn); err == nil {
			_, _ = conn.Write([]byte{1}) // who waits for it sees that it is missing
		}
	})
	body := []byte(strings.Repeat("x", bodySize))
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body) // the client has gone, or it reads
	})}
	go func() { _ = server.Serve(web) }() // it ends by Close
	c.closes = append(c.closes, func() { _, _ = sink.Close(), server.Close() })
	c.sink, c.web = sink.Addr().String(), web.Addr().String()
	return nil
}

// accept handles connections until the listener closes.
func accept(listener net.Listener, handle func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			handle(conn)
		}()
	}
}
