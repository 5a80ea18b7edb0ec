package edge

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	defaultIdle = 60 * time.Second
	// drainIdle is the idle timeout while shutting down: a datagram has no end,
	// so a flow that is silent for this long counts as finished.
	drainIdle = time.Second
)

// flow is the datagrams between one peer and one target.
type flow struct {
	link
	idle           time.Duration
	draining       *atomic.Bool
	last           atomic.Int64 // time of the last datagram, Unix nanoseconds
	received, sent atomic.Int64
}

// hasten makes both readers look at the clock again.
func (f *flow) hasten() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.client.SetReadDeadline(now)
	if f.backend != nil {
		f.backend.SetReadDeadline(now)
	}
}

func (e *Edge) admitFlow(l *listener, c net.Conn, rt *datagramRoute) {
	if rt == nil { // the port is about to close
		c.Close()
		return
	}
	if l.open.Add(1) > int64(e.opts.MaxFlows) {
		l.open.Add(-1)
		c.Close()
		e.opts.Metrics.Rejected(rt.Expose, RejectTooMany)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flow{link: link{client: c, cancel: cancel}, idle: rt.IdleTimeout, draining: &e.draining}
	if !e.open.add(f) {
		cancel()
		l.open.Add(-1)
		c.Close()
		return
	}
	go func() {
		defer e.open.remove(f)
		defer l.open.Add(-1)
		defer cancel()
		e.serveFlow(ctx, f, rt)
	}()
}

func (e *Edge) serveFlow(ctx context.Context, f *flow, rt *datagramRoute) {
	defer f.cut()
	e.opts.Metrics.Opened(rt.Expose, "udp")
	defer func() { e.opts.Metrics.Closed(rt.Expose, "udp", f.received.Load(), f.sent.Load()) }()
	// This sends nothing; only a name that doesn't resolve makes it wait or fail.
	backend, err := f.connect(ctx, e, "udp", rt.rotation)
	if err != nil {
		e.opts.Metrics.Rejected(rt.Expose, RejectUnreachable)
		e.opts.Log.Warn("opening the flow to the backend", "expose", rt.Expose, "peer", f.client.RemoteAddr(), "err", err)
		return
	}
	f.last.Store(time.Now().UnixNano())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.pump(&e.bufs, f.client, backend, &f.sent)
		f.cut()
	}()
	f.pump(&e.bufs, backend, f.client, &f.received)
	f.cut()
	<-done
}

// pump copies datagrams from src to dst until the flow is idle or src is closed.
func (f *flow) pump(b *buffers, dst, src net.Conn, count *atomic.Int64) {
	buf := b.big.get()
	defer b.big.put(buf)
	if !f.arm(src) {
		return
	}
	for {
		n, err := src.Read(buf[:])
		if err == nil {
			f.last.Store(time.Now().UnixNano())
			// A datagram that can't be sent is lost, as on any network: the
			// target may be back for the next one.
			m, err := dst.Write(buf[:n])
			if errors.Is(err, net.ErrClosed) {
				return
			}
			count.Add(int64(m))
			continue
		}
		var ne net.Error
		switch {
		case errors.As(err, &ne) && ne.Timeout():
			if !f.arm(src) {
				return
			}
		case errors.Is(err, syscall.ECONNREFUSED): // ICMP answer to an earlier datagram
		default:
			return
		}
	}
}

// arm sets the deadline at which the flow may be idle, and reports whether it
// is not idle yet. Datagrams only move f.last, so a deadline is set once per
// idle period and not per datagram.
func (f *flow) arm(src net.Conn) bool {
	for {
		draining := f.draining.Load()
		idle := f.idle
		if draining {
			idle = min(idle, drainIdle)
		}
		left := idle - time.Since(time.Unix(0, f.last.Load()))
		if left <= 0 {
			return false
		}
		src.SetReadDeadline(time.Now().Add(left))
		if draining == f.draining.Load() { // else hasten's deadline may just have been overwritten
			return true
		}
	}
}
