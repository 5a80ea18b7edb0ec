// Package headscale speaks the REST API of Headscale 0.29, /api/v1. It does not use gRPC, which 0.30 drops.
//
// Where that API answers 500 to what is no fault of the server, classify tells the cases apart by their text; nothing else
// in this package looks at text. Statements about the server's behaviour were tried against 0.29.2; the tests run that.
package headscale

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
)

// Options says how to reach a Headscale.
type Options struct {
	// URL is where Headscale listens, e.g. "https://headscale.example". Required.
	URL string
	// APIKey returns the key to send. It is called for every request, so that a changed file is noticed. Required.
	APIKey func() (string, error)
	// CAPEM holds the certificates to trust instead of the system's. Excludes HTTPClient.
	CAPEM []byte
	// HTTPClient is used with its transport and without its timeout and redirects. Nil means a new one.
	HTTPClient *http.Client
	// Timeout bounds a call with its retries; zero means 15 seconds.
	Timeout time.Duration
	// Log gets a debug line for every request. Nil means none.
	Log *slog.Logger
}

const (
	defaultTimeout = 15 * time.Second
	// maxAnswer bounds an answer. 10,000 nodes are about 10 MiB.
	maxAnswer = 64 << 20
)

// Client is a controlplane.Client.
type Client struct {
	base    *url.URL
	key     func() (string, error)
	timeout time.Duration
	log     *slog.Logger
	once    *http.Client          // for requests that must not be sent twice
	retry   *retryablehttp.Client // for GET and DELETE
	// writing is held from reading the policy to having written it: the API has no guard, and two writers of this
	// process must not take turns between each other's steps.
	writing sync.Mutex
}

var _ controlplane.Client = (*Client)(nil)

// New checks the options; it sends nothing.
func New(o Options) (*Client, error) {
	base, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.APIKey == nil {
		return nil, errors.New("headscale API key is missing")
	}
	once, err := newHTTPClient(o)
	if err != nil {
		return nil, err
	}
	c := &Client{
		base:    base,
		key:     o.APIKey,
		timeout: cmp.Or(o.Timeout, defaultTimeout),
		log:     cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		once:    once,
	}
	c.retry = &retryablehttp.Client{
		HTTPClient:   once,
		RetryMax:     3,
		RetryWaitMin: 100 * time.Millisecond,
		RetryWaitMax: 2 * time.Second,
		CheckRetry:   worthRetrying,
		Backoff:      retryablehttp.DefaultBackoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return c, nil
}

// CloseIdleConnections closes connections that no request uses.
func (c *Client) CloseIdleConnections() { c.once.CloseIdleConnections() }

func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("headscale URL: %w", errors.Unwrap(err)) // the outer error repeats the text, password and all
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("headscale URL %q: want https://host[:port]", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("headscale URL %q: want no user, query or fragment; the API key is a setting of its own", u.Redacted())
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

func newHTTPClient(o Options) (*http.Client, error) {
	hc := new(http.Client)
	switch {
	case o.HTTPClient != nil && o.CAPEM != nil:
		return nil, errors.New("headscale CA bundle and HTTP client exclude each other")
	case o.HTTPClient != nil:
		*hc = *o.HTTPClient
	default:
		tr := &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		}
		if o.CAPEM != nil {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(o.CAPEM) {
				return nil, errors.New("headscale CA bundle: no PEM certificate in it")
			}
			tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
		}
		hc.Transport = tr
	}
	hc.Timeout = 0 // every call has its context
	// A redirect would turn a PUT into a GET; it means that the URL is wrong, so say that.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return hc, nil
}

// worthRetrying is for requests that do no harm twice. A 500 is not worth it: Headscale gives it for much that stays wrong.
func worthRetrying(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var certificate *tls.CertificateVerificationError
		return !errors.As(err, &certificate) && !errors.Is(err, http.ErrSchemeMismatch), nil
	}
	return isOverload(resp.StatusCode), nil
}

func isOverload(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
