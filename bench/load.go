package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"tailscale.com/tsnet"
)

// errNotThere says that the load cannot send to an address yet.
var errNotThere = errors.New("the load has no path to it yet")

// load is the peer that asks: a node in this process. It is no testbed.Peer, whose Dial hands an address that is not in its
// network map to the system's network: here nodes are dialled while they come up.
type load struct{ server *tsnet.Server }

// dial connects over the tailnet and nowhere else, once there is a path: a first packet that nobody takes is sent again after
// five seconds only, and whether it is lost is chance.
func (l *load) dial(ctx context.Context, address, port string) (net.Conn, error) {
	if _, err := l.path(ctx, address); err != nil {
		return nil, fmt.Errorf("dialling %s: %w", address, err)
	}
	target := net.JoinHostPort(address, port)
	if _, onTailnet, err := l.server.Sys().Dialer.Get().UserDialPlan(ctx, "tcp", target); err != nil || !onTailnet {
		return nil, errors.Join(fmt.Errorf("dialling %s: %w", target, errNotThere), err)
	}
	return l.server.Dial(ctx, "tcp", target)
}

// path says how the load reaches an address: directly or by the relay. Figures of two paths do not compare.
func (l *load) path(ctx context.Context, address string) (string, error) {
	client, err := l.server.LocalClient()
	if err != nil {
		return "", err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, peer := range status.Peer {
		switch {
		case !slices.ContainsFunc(peer.TailscaleIPs, func(ip netip.Addr) bool { return ip.String() == address }):
		case peer.CurAddr != "":
			return "direct", nil
		case peer.Relay != "":
			return "relay", nil
		}
	}
	return "", fmt.Errorf("%s: %w", address, errNotThere)
}

// side is one of the two that are compared, as clients know it.
type side struct{ address, host, roots string }

func (s side) url() string { return "https://" + s.host + "/" }

// client resolves every name to the side's address, holds one connection, and speaks one version of HTTP.
func (l *load) client(s side, version int) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.roots))
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: version == 2, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, s.address, "443") },
	}
	if version == 1 {
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return &http.Client{Transport: transport, Timeout: time.Minute}
}
