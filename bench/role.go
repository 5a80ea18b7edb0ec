package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
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
	"strings"
	"time"

	"tailscale.com/tsnet"
)

// bareNode is a process with nodes that do without Postern what it does.
type bareNode struct {
	address    string
	goroutines int
	cmd        *exec.Cmd
	stdin      io.Closer
}

// startRole runs this program again, as n bare nodes, and waits until they are up. It ends with its standard input.
func startRole(ctx context.Context, c *chain, role, name string, n int) (*bareNode, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-role", role)
	cmd.Env = append(os.Environ(), "BENCH_CONTROL="+c.headscale.URL, "BENCH_KEY="+c.bareKey, "BENCH_NAME="+name, "BENCH_NODES="+strconv.Itoa(n),
		"BENCH_DIR="+filepath.Join(c.dir, name), "BENCH_SINK="+c.sink, "BENCH_WEB="+c.web)
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
	b := &bareNode{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.stop()
		return nil, fmt.Errorf("waiting for the bare node: %w", err)
	}
	_, err = fmt.Sscan(line, &b.address, &b.goroutines)
	return b, err
}

func (b *bareNode) stop() {
	_ = b.stdin.Close() // it ends then
	_ = b.cmd.Wait()    // how it ends is of no interest
}

// runRole is the other process: bare nodes, until standard input ends.
func runRole(ctx context.Context, role string) error {
	n, err := strconv.Atoi(os.Getenv("BENCH_NODES"))
	if err != nil {
		return fmt.Errorf("BENCH_NODES: %w", err)
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
		status, err := server.Up(ctx)
		if err != nil {
			return fmt.Errorf("bringing up a node: %w", err)
		}
		defer server.Close()
		address = status.TailscaleIPs[0].String()
		if err := serveBare(server); err != nil {
			return err
		}
	}
	if role == "idle" {
		time.Sleep(settle) // as the agent is given
	}
	fmt.Println(address, runtime.NumGoroutine())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// serveBare forwards a port, and proxies HTTPS, the shortest way that Go has.
func serveBare(server *tsnet.Server) error {
	bulk, err := server.Listen("tcp", ":5001")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	go forward(bulk, os.Getenv("BENCH_SINK"))
	web, err := server.Listen("tcp", ":443")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	certificate, err := selfSigned()
	if err != nil {
		return err
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
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"bare.example.internal"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// startWeb serves a body of 1 KiB.
func startWeb(closes *[]func()) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("starting the web server: %w", err)
	}
	body := []byte(strings.Repeat("x", 1024))
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body) // the client has gone, or it reads
	})}
	go func() { _ = server.Serve(listener) }() // it ends by Close
	*closes = append(*closes, func() { _ = server.Close() })
	return listener.Addr().String(), nil
}
