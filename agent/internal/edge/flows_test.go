package edge

import (
	"net"
	"os"
	"sync"
	"time"
)

// flowListener yields one net.Conn per UDP flow, as tsnet's Listen("udp") does.
type flowListener struct {
	pc     *net.UDPConn
	accept chan net.Conn
	done   chan struct{} // closed when the reader has ended

	mu     sync.Mutex // guards following
	flows  map[string]*flowConn
	closed bool
}

func listenFlows() (net.Listener, error) {
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	l := &flowListener{pc: pc, accept: make(chan net.Conn), done: make(chan struct{}), flows: map[string]*flowConn{}}
	go l.read()
	return l, nil
}

func (l *flowListener) read() {
	defer close(l.done)
	buf := make([]byte, 1<<16)
	for {
		n, from, err := l.pc.ReadFromUDP(buf)
		if err != nil {
			close(l.accept)
			return
		}
		l.mu.Lock()
		f := l.flows[from.String()]
		if l.closed && f == nil {
			l.mu.Unlock()
			continue
		}
		fresh := f == nil
		if fresh {
			f = &flowConn{l: l, peer: from, in: make(chan []byte, 256), closed: make(chan struct{}), wake: make(chan struct{})}
			l.flows[from.String()] = f
		}
		l.mu.Unlock()
		select {
		case f.in <- append([]byte(nil), buf[:n]...):
		default:
		}
		if fresh {
			select {
			case l.accept <- f:
			case <-time.After(time.Second):
				f.Close()
			}
		}
	}
}

func (l *flowListener) Accept() (net.Conn, error) {
	c, ok := <-l.accept
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *flowListener) Addr() net.Addr { return l.pc.LocalAddr() }

// Close ends the listener at once; its flows go on in tsnet, but their socket is this one's here.
func (l *flowListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	err := l.pc.Close()
	<-l.done
	return err
}

type flowConn struct {
	l      *flowListener
	peer   *net.UDPAddr
	in     chan []byte
	once   sync.Once
	closed chan struct{}

	mu       sync.Mutex // guards following
	deadline time.Time
	wake     chan struct{} // replaced when the deadline changes
}

func (f *flowConn) Read(p []byte) (int, error) {
	for {
		f.mu.Lock()
		deadline, wake := f.deadline, f.wake
		f.mu.Unlock()
		var expired <-chan time.Time
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			expired = timer.C
		}
		select {
		case b := <-f.in:
			return copy(p, b), nil
		case <-f.closed:
			return 0, net.ErrClosed
		case <-wake:
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (f *flowConn) Write(p []byte) (int, error) {
	select {
	case <-f.closed:
		return 0, net.ErrClosed
	default:
	}
	return f.l.pc.WriteToUDP(p, f.peer)
}

func (f *flowConn) Close() error {
	f.once.Do(func() {
		close(f.closed)
		f.l.mu.Lock()
		delete(f.l.flows, f.peer.String())
		f.l.mu.Unlock()
	})
	return nil
}

func (f *flowConn) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline = t
	close(f.wake)
	f.wake = make(chan struct{})
	return nil
}

func (f *flowConn) SetDeadline(t time.Time) error    { return f.SetReadDeadline(t) }
func (f *flowConn) SetWriteDeadline(time.Time) error { return nil }
func (f *flowConn) LocalAddr() net.Addr              { return f.l.pc.LocalAddr() }
func (f *flowConn) RemoteAddr() net.Addr             { return f.peer }
