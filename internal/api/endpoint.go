package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
)

// DefaultSocket is where an agent without configuration listens, and where a client without one looks.
const DefaultSocket = "/run/postern/postern.sock"

// Options say how to reach an agent.
type Options struct {
	// Endpoint is unix:///path/to/socket or https://host:port. Required.
	Endpoint string
	// Token is the bearer token; required with https.
	Token string
	// CAPEM is what the agent's certificate is verified with; empty means the host's roots.
	CAPEM string
	// Workspace is declared with every write; may be empty.
	Workspace string
	// UserAgent may be empty.
	UserAgent string
}

// transport gives the base URL and the transport for an endpoint. Plain TCP is refused, on loopback too (A5).
func (o Options) transport() (string, *http.Transport, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil {
		return "", nil, fmt.Errorf("endpoint %q: %w", o.Endpoint, err)
	}
	t := &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	t.DialContext = dialer.DialContext
	switch u.Scheme {
	case "unix":
		path := u.Path
		if u.Host != "" || !filepath.IsAbs(path) {
			return "", nil, fmt.Errorf("endpoint %q: a socket is named by an absolute path; write unix:///run/postern/postern.sock", o.Endpoint)
		}
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
		return "http://postern", t, nil
	case "https":
		if u.Host == "" || (u.Path != "" && u.Path != "/") {
			return "", nil, fmt.Errorf("endpoint %q: write https://host:port without a path", o.Endpoint)
		}
		if o.Token == "" {
			return "", nil, fmt.Errorf("endpoint %q: a token is needed; `postern token create` on the agent's host makes one", o.Endpoint)
		}
		if t.TLSClientConfig, err = o.tlsConfig(); err != nil {
			return "", nil, err
		}
		t.ForceAttemptHTTP2 = true
		return "https://" + u.Host, t, nil
	case "http":
		return "", nil, fmt.Errorf("endpoint %q: the agent is never reached over plain TCP; use https:// or unix://", o.Endpoint)
	default:
		return "", nil, fmt.Errorf("endpoint %q: the scheme is unix:// or https://", o.Endpoint)
	}
}

func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAPEM == "" {
		return config, nil
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM([]byte(o.CAPEM)) {
		return nil, errors.New("the agent's CA certificate: no certificate in PEM was found in it")
	}
	return config, nil
}
