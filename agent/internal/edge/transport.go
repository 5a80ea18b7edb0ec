package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// rotation hands out the targets of one backend in turn.
type rotation struct {
	targets []string
	next    atomic.Uint32
}

// orNew returns r if it is for the same targets, which keeps its turn.
func (r *rotation) orNew(targets []string) *rotation {
	if r != nil && slices.Equal(r.targets, targets) {
		return r
	}
	return &rotation{targets: slices.Clone(targets)}
}

// turn returns where the next attempt starts.
func (r *rotation) turn() uint32 { return r.next.Add(1) - 1 }

// at returns the target of an attempt, counted from a turn.
func (r *rotation) at(i uint32) string { return r.targets[i%uint32(len(r.targets))] }

// backend is a set of targets for HTTP and the connections kept to them. Hosts
// with the same targets share it.
type backend struct {
	rotation  *rotation
	transport *http.Transport
	retired   atomic.Bool // no plane has it any more; running requests still do
}

// backendKey is the same for backends that may share a transport.
func backendKey(targets []string) string { return strings.Join(targets, "\n") }

const (
	maxIdlePerTarget  = 512
	backendIdle       = 90 * time.Second
	maxResponseHeader = 1 << 20 // bytes
)

func (e *Edge) newBackend(targets []string) *backend {
	return &backend{
		rotation: (*rotation)(nil).orNew(targets),
		transport: &http.Transport{
			// Proxy stays nil: the environment says nothing about backends.
			DialContext:            e.dial,
			MaxIdleConnsPerHost:    maxIdlePerTarget,
			IdleConnTimeout:        backendIdle,
			ExpectContinueTimeout:  time.Second,
			DisableCompression:     true, // bodies pass as they are
			MaxResponseHeaderBytes: maxResponseHeader,
		},
	}
}

// retire closes the connections that are idle; release closes the others.
func (b *backend) retire() {
	b.retired.Store(true)
	b.transport.CloseIdleConnections()
}

// release is called at the end of each request: its connection may have become
// idle after retire.
func (b *backend) release() {
	if b.retired.Load() {
		b.transport.CloseIdleConnections()
	}
}

// dialError says that a connection was not made, so that nothing was sent and
// another target may be tried.
type dialError struct {
	target string
	err    error
}

func (e *dialError) Error() string { return fmt.Sprintf("connecting to %s: %v", e.target, e.err) }
func (e *dialError) Unwrap() error { return e.err }

// dial connects to one target.
func (e *Edge) dial(ctx context.Context, network, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.ConnectTimeout)
	defer cancel()
	c, err := e.opts.Dialer(ctx, network, target)
	if err != nil {
		return nil, &dialError{target: target, err: err}
	}
	return c, nil
}

var errNoTargets = errors.New("no targets")

// dialAny connects to the target whose turn it is, or to the next that can be reached.
func (e *Edge) dialAny(ctx context.Context, network string, r *rotation) (net.Conn, error) {
	if len(r.targets) == 0 {
		return nil, errNoTargets
	}
	var errs []error
	turn := r.turn()
	for i := range uint32(len(r.targets)) {
		c, err := e.dial(ctx, network, r.at(turn+i))
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// guardedDialer refuses link-local addresses, where clouds keep their metadata
// and credentials. It looks at the address that is really dialled, after name
// resolution (X18).
func guardedDialer() DialFunc {
	d := &net.Dialer{
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("checking the address: %w", err)
			}
			if ap.Addr().Unmap().IsLinkLocalUnicast() {
				return fmt.Errorf("address %s is link-local, which backends may not be", ap.Addr())
			}
			return nil
		},
	}
	return d.DialContext
}
