package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
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

	"tailscale.com/ipn/ipnstate"
	"tailscale.com/tsnet"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// bareHost is the name in a bare node's certificate.
const bareHost = "bare.example.internal"

// bareNode is a process with nodes that do without Postern what it does.
type bareNode struct {
	address    string
	goroutines int
	roots      string

	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// startRole runs this program again, to be n bare nodes when up tells it to. It ends with its standard input.
func startRole(ctx context.Context, c *chain, role, name string, n int) (*bareNode, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-role", role)
	cmd.Env = append(os.Environ(), "BENCH_CONTROL="+c.headscale.URL, "BENCH_KEY="+c.bareKey, "BENCH_NAME="+name, "BENCH_NODES="+strconv.Itoa(n),
		"BENCH_DIR="+filepath.Join(c.dir, name), "BENCH_SINK="+c.sink, "BENCH_WEB="+c.web)
	cmd.Env = append(cmd.Env, testbed.Env()...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the bare node: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the bare node: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the bare node: %w", err)
	}
	b := &bareNode{cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
	if _, err := b.line(); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

// up has the nodes come up, and waits until they are.
func (b *bareNode) up() error {
	if _, err := fmt.Fprintln(b.stdin); err != nil {
		return fmt.Errorf("telling the bare node to come up: %w", err)
	}
	line, err := b.line()
	if err != nil {
		return err
	}
	var roots string
	if _, err := fmt.Sscan(line, &b.address, &b.goroutines, &roots); err != nil {
		return fmt.Errorf("reading what the bare node says: %w", err)
	}
	text, err := base64.StdEncoding.DecodeString(roots)
	b.roots = string(text)
	return err
}

func (b *bareNode) line() (string, error) {
	limit := time.AfterFunc(patience, func() { _ = b.cmd.Process.Kill() }) // reading ends then
	defer limit.Stop()
	line, err := b.stdout.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("waiting for the bare node: %w", err)
	}
	return line, nil
}

func (b *bareNode) side() side { return side{address: b.address, host: bareHost, roots: b.roots} }

func (b *bareNode) stop() {
	_ = b.stdin.Close()                                                      // it ends then
	limit := time.AfterFunc(closeLimit, func() { _ = b.cmd.Process.Kill() }) // crowded nodes may not close
	defer limit.Stop()
	_ = b.cmd.Wait() // how it ends is of no interest
}

// runRole is the other process: bare nodes, until standard input ends.
func runRole(ctx context.Context, role string) error {
	n, err := strconv.Atoi(os.Getenv("BENCH_NODES"))
	if err != nil {
		return fmt.Errorf("BENCH_NODES: %w", err)
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Fprintln(os.Stdout, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return nil // nobody wants it to come up
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	address := ""
	for i := range n {
		server := &tsnet.Server{
			Hostname: fmt.Sprintf("%s-%d", os.Getenv("BENCH_NAME"), i), Dir: filepath.Join(os.Getenv("BENCH_DIR"), strconv.Itoa(i)),
			ControlURL: os.Getenv("BENCH_CONTROL"), AuthKey: os.Getenv("BENCH_KEY"), UserLogf: func(string, ...any) {},
		}
		if err := os.MkdirAll(server.Dir, 0o700); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
		status, err := bringUp(ctx, server)
		if err != nil {
			return err
		}
		defer server.Close()
		address = status.TailscaleIPs[0].String()
		if err := serveBare(server, certificate); err != nil {
			return err
		}
	}
	if role == "idle" {
		time.Sleep(settle) // as the agent is given
	}
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	fmt.Fprintln(os.Stdout, address, runtime.NumGoroutine(), base64.StdEncoding.EncodeToString(roots))
	_, err = io.Copy(io.Discard, in)
	return err
}

func bringUp(ctx context.Context, server *tsnet.Server) (*ipnstate.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, err := server.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("bringing up a node: %w", err)
	}
	return status, nil
}

// serveBare forwards a port, and proxies HTTPS, the shortest way that Go has.
func serveBare(server *tsnet.Server, certificate tls.Certificate) error {
	bulk, err := server.Listen("tcp", ":5001")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	go forward(bulk, os.Getenv("BENCH_SINK"))
	web, err := server.Listen("tcp", ":443")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	to := &url.URL{Scheme: "http", Host: os.Getenv("BENCH_WEB")}
	proxy := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: 10 * time.Second,
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
			Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
		},
	}
	go func() { _ = proxy.ServeTLS(web, "", "") }() // it ends with the process
	return nil
}

func forward(listener net.Listener, to string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			backend, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer backend.Close()
			done := make(chan struct{}, 2)
			copyHalf := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src) // either side may leave
				if half, ok := dst.(interface{ CloseWrite() error }); ok {
					_ = half.CloseWrite() // the other side has gone
				}
				done <- struct{}{}
			}
			go copyHalf(backend, conn)
			go copyHalf(conn, backend)
			<-done
			<-done
		}()
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{bareHost},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
