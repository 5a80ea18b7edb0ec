package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// link is a client's connection and the one to its backend: a TCP stream, or
// the base of a UDP flow.
type link struct {
	client net.Conn
	cancel context.CancelFunc // ends the dialling

	mu      sync.Mutex // guards following
	backend net.Conn   // nil until connected
	ended   bool       // by cut
}

func (k *link) hasten() {}

func (k *link) cut() {
	k.mu.Lock()
	k.ended = true
	backend := k.backend
	k.mu.Unlock()
	k.cancel()
	abort(k.client)
	if backend != nil {
		abort(backend)
	}
}

// connect dials a target. The connection is closed by cut too.
func (k *link) connect(ctx context.Context, e *Edge, network string, r *rotation) (net.Conn, error) {
	c, err := e.dialAny(ctx, network, r)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		abort(c)
		return nil, net.ErrClosed
	}
	k.backend = c
	return c, nil
}

func (e *Edge) startStream(l *listener, c net.Conn, rt *streamRoute) {
	ctx, cancel := context.WithCancel(context.Background())
	k := &link{client: c, cancel: cancel}
	if !e.open.add(k) {
		cancel()
		l.open.Add(-1)
		abort(c)
		return
	}
	go func() {
		defer e.open.remove(k)
		defer l.open.Add(-1)
		defer cancel()
		e.serveStream(ctx, k, rt)
	}()
}

func (e *Edge) serveStream(ctx context.Context, k *link, rt *streamRoute) {
	e.opts.Metrics.Opened(rt.Expose, "tcp")
	var up, down int64
	defer func() { e.opts.Metrics.Closed(rt.Expose, "tcp", up, down) }()

	backend, err := k.connect(ctx, e, "tcp", rt.rotation)
	if err == nil && rt.ProxyProtocol != "" {
		_, err = backend.Write(proxyHeader(rt.ProxyProtocol, k.client.RemoteAddr(), k.client.LocalAddr()))
	}
	if err != nil {
		k.cut()
		e.opts.Metrics.Rejected(rt.Expose, RejectUnreachable)
		e.opts.Log.Warn("connecting to the backend", "expose", rt.Expose, "peer", k.client.RemoteAddr(), "err", err)
		return
	}
	up, down, err = e.bufs.tunnel(end{conn: k.client}, end{conn: backend})
	if err != nil {
		e.opts.Log.Debug("stream broke off", "expose", rt.Expose, "peer", k.client.RemoteAddr(), "err", err)
	}
}

// end is one end of a tunnel.
type end struct {
	conn  net.Conn
	early []byte // bytes already read from conn
}

// tunnel copies both ways until both directions have ended, then closes both
// ends. The end of one direction is passed on as a half-close; a connection
// that broke off breaks off the other one.
func (b *buffers) tunnel(client, backend end) (up, down int64, err error) {
	var downErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		down, downErr = b.pump(client.conn, backend)
	}()
	up, upErr := b.pump(backend.conn, client)
	<-done
	backend.conn.Close() // first: the end of an upgraded client aborts what is still open
	client.conn.Close()
	return up, down, errors.Join(upErr, downErr)
}

// pump copies one direction.
func (b *buffers) pump(dst net.Conn, src end) (int64, error) {
	n, err := b.copy(dst, src)
	switch {
	case err == nil:
		closeWrite(dst)
	case errors.Is(err, syscall.EPIPE):
		// dst had sent its FIN and then closed: it takes nothing more, but what
		// it sent before is still to be delivered by the other direction.
		// A dst that broke off without FIN gives ECONNRESET.
		err = nil
	default:
		abort(src.conn)
		abort(dst)
	}
	return n, err
}

// closeWrite ends the stream towards c and leaves the other direction open.
// An error means that the peer is gone, which the other direction finds out.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		h.CloseWrite()
		return
	}
	c.Close()
}

// copy copies src to dst until its end. Two kernel sockets are spliced.
func (b *buffers) copy(dst net.Conn, src end) (n int64, err error) {
	if len(src.early) > 0 {
		m, err := dst.Write(src.early)
		n = int64(m)
		if err != nil {
			return n, err
		}
	}
	d, dok := dst.(*net.TCPConn)
	s, sok := src.conn.(*net.TCPConn)
	if dok && sok {
		m, err := d.ReadFrom(s)
		return n + m, err
	}
	buf := b.big.get()
	defer b.big.put(buf)
	for {
		nr, rerr := src.conn.Read(buf[:])
		if nr > 0 {
			nw, werr := dst.Write(buf[:nr])
			n += int64(nw)
			if werr != nil {
				return n, werr
			}
		}
		if errors.Is(rerr, io.EOF) {
			return n, nil
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

const bigBuffer = 64 << 10

// buffers are the pools of one Edge.
type buffers struct {
	big    pool[[bigBuffer]byte] // streams and datagrams
	copier pool[copier]          // response bodies
}

// pool keeps what is costly to make.
type pool[T any] struct {
	free sync.Pool
}

func (p *pool[T]) get() *T {
	if v, ok := p.free.Get().(*T); ok {
		return v
	}
	return new(T)
}

func (p *pool[T]) put(v *T) { p.free.Put(v) }
