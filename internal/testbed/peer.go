package testbed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"tailscale.com/tsnet"
)

// Peer is a device on the tailnet that is not Postern's: a client.
type Peer struct {
	server *tsnet.Server
}

// StartPeer brings up a device in this process. Its state goes to dir.
func StartPeer(ctx context.Context, h *Headscale, name, key, dir string) (*Peer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of peer %s: %w", name, err)
	}
	p := &Peer{server: &tsnet.Server{
		Hostname: name, Dir: dir, ControlURL: h.URL, AuthKey: key,
		UserLogf: func(string, ...any) {}, Logf: func(string, ...any) {},
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := p.server.Up(ctx); err != nil {
		return nil, fmt.Errorf("bringing up peer %s: %w", name, err)
	}
	return p, nil
}

// closeLimit is how long a peer may take to close. tsnet 1.102 hangs when more than 512 of its connections, those in
// TIME_WAIT included, want to send a reset: such a peer is left to the end of this process.
const closeLimit = 10 * time.Second

// Close takes the peer off the tailnet.
func (p *Peer) Close() error {
	done := make(chan error, 1)
	go func() { done <- p.server.Close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(closeLimit):
		return nil
	}
}

// Address is the peer's own address on the tailnet.
func (p *Peer) Address() string {
	v4, _ := p.server.TailscaleIPs()
	return v4.String()
}

// Dial connects over the tailnet, by MagicDNS name or address. It asks no DNS server: a name must be in the tailnet.
func (p *Peer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return p.server.Dial(ctx, network, address)
}

// HTTPClient gives a client that reaches every host at address on the tailnet, while name and certificate are those of the
// URL: what a resolver of the tailnet would bring about.
func (p *Peer) HTTPClient(address, rootsPEM string) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(rootsPEM))
	return &http.Client{
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 256,
			DialContext: func(ctx context.Context, network, target string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(target)
				if err != nil {
					return nil, err
				}
				return p.server.Dial(ctx, network, net.JoinHostPort(address, port))
			},
		},
	}
}
