package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"tailscale.com/tsnet"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// bareHost is the name in a bare node's certificate.
const bareHost = "bare.example.internal"

// order tells a bare process what to be, and report is what it answers. It reports once, empty, before it takes an order.
type (
	order struct {
		Name, Dir, Control, Key, Sink, Web string
		Nodes                              int
		Settle                             time.Duration // before it reports
	}
	report struct {
		Address    string // of the last node
		Goroutines int
		Roots      string
	}
)

// bareNode is a process with nodes that do without Postern what it does.
type bareNode struct {
	report

	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *json.Decoder
}

// startBare runs this program again, to be bare nodes when up tells it to. It ends with its standard input.
func startBare(ctx context.Context) (*bareNode, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-bare")
	cmd.Env, cmd.Stderr = append(os.Environ(), testbed.Env()...), os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return nil, fmt.Errorf("starting a bare process: %w", err)
	}
	b := &bareNode{cmd: cmd, stdin: stdin, out: json.NewDecoder(stdout)}
	if err := b.await(); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// up has nodes come up, like the shop in what they serve, and waits until they are.
func (b *bareNode) up(c *chain, name string, nodes int, settle time.Duration) error {
	o := order{
		Name: name, Dir: filepath.Join(c.dir, name), Control: c.headscale.URL, Key: c.bareKey, Sink: c.sink, Web: c.web, Nodes: nodes, Settle: settle,
	}
	if err := json.NewEncoder(b.stdin).Encode(o); err != nil {
		return fmt.Errorf("telling a bare process to come up: %w", err)
	}
	return b.await()
}

func (b *bareNode) await() error {
	limit := time.AfterFunc(patience, func() { _ = b.cmd.Process.Kill() }) // reading ends then
	defer limit.Stop()
	if err := b.out.Decode(&b.report); err != nil {
		return fmt.Errorf("waiting for a bare process: %w", err)
	}
	return nil
}

func (b *bareNode) side() side { return side{address: b.Address, host: bareHost, roots: b.Roots} }

func (b *bareNode) stop() {
	_ = b.stdin.Close()                                                      // it ends then
	limit := time.AfterFunc(closeLimit, func() { _ = b.cmd.Process.Kill() }) // crowded nodes may not close
	defer limit.Stop()
	_ = b.cmd.Wait() // how it ends is of no interest
}

// runBare is the other process: bare nodes, until standard input ends.
func runBare(ctx context.Context) error {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var o order
	if err := errors.Join(out.Encode(report{}), in.Decode(&o)); err != nil {
		return fmt.Errorf("waiting for an order: %w", err)
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	r := report{Roots: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))}
	for i := range o.Nodes {
		server, err := bringUp(ctx, o.Control, o.Key, fmt.Sprintf("%s-%d", o.Name, i), filepath.Join(o.Dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		defer server.Close()
		v4, _ := server.TailscaleIPs()
		r.Address = v4.String()
		if err := o.serve(server, certificate); err != nil {
			return err
		}
	}
	time.Sleep(o.Settle)
	r.Goroutines = runtime.NumGoroutine()
	if err := out.Encode(r); err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// bringUp gives a node that is on the tailnet.
func bringUp(ctx context.Context, control, key, name, dir string) (*tsnet.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	server := &tsnet.Server{Hostname: name, Dir: dir, ControlURL: control, AuthKey: key, UserLogf: func(string, ...any) {}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := server.Up(ctx); err != nil {
		return nil, fmt.Errorf("bringing up node %s: %w", name, err)
	}
	return server, nil
}

// serve forwards a port, and proxies HTTPS, the shortest way that Go has.
func (o order) serve(server *tsnet.Server, certificate tls.Certificate) error {
	bulk, bulkErr := server.Listen("tcp", ":"+bulkPort)
	web, webErr := server.Listen("tcp", ":443")
	if err := errors.Join(bulkErr, webErr); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	go accept(bulk, o.forward)
	proxy := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: 10 * time.Second,
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: o.Web}); r.SetXForwarded() },
			Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		},
	}
	go func() { _ = proxy.ServeTLS(web, "", "") }() // it ends with the process
	return nil
}

func (o order) forward(conn net.Conn) {
	backend, err := net.Dial("tcp", o.Sink)
	if err != nil {
		return
	}
	defer backend.Close()
	done := make(chan struct{})
	copyHalf := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src) // either side may leave
		if half, ok := dst.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the other side has gone
		}
	}
	go func() { defer close(done); copyHalf(backend, conn) }()
	copyHalf(conn, backend)
	<-done
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: []string{bareHost}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
