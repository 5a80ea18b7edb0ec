package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Handshake proves what is served for a name by a handshake in memory, verified as a peer that trusts roots would (R2).
func Handshake(ctx context.Context, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), name string, roots *x509.CertPool, now time.Time) error {
	near, far := newWire()
	defer near.Close()
	defer far.Close()
	server := tls.Server(far, &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12})
	client := tls.Client(near, &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12, Time: func() time.Time { return now }})
	served := make(chan error, 1)
	go func() { served <- server.HandshakeContext(ctx) }()
	err := client.HandshakeContext(ctx)
	if err != nil {
		_ = near.Close() // the server may still wait for the client
	}
	if theirs := <-served; err == nil && theirs != nil {
		err = theirs
	}
	if err != nil {
		return fmt.Errorf("handshake for %s: %w", name, err)
	}
	return nil
}

// wire is one end of a connection in memory that holds what is written until it is read. With net.Pipe, which holds nothing,
// a client that finds fault could not say so to a server that is still writing. It is safe for concurrent use.
type wire struct {
	net.Conn // nil: a handshake needs no more than what is below
	in, out  *lane
}

// lane is one direction of a wire.
type lane struct {
	mu     sync.Mutex
	filled *sync.Cond

	// mu guards following
	held   bytes.Buffer
	closed bool
}

func newWire() (near, far *wire) {
	there, back := new(lane), new(lane)
	there.filled, back.filled = sync.NewCond(&there.mu), sync.NewCond(&back.mu)
	return &wire{in: back, out: there}, &wire{in: there, out: back}
}

// Read waits for something to read, and gives what is left after the other end closed.
func (w *wire) Read(p []byte) (int, error) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for w.in.held.Len() == 0 {
		if w.in.closed {
			return 0, io.EOF
		}
		w.in.filled.Wait()
	}
	return w.in.held.Read(p)
}

func (w *wire) Write(p []byte) (int, error) {
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	if w.out.closed {
		return 0, net.ErrClosed
	}
	w.out.filled.Broadcast()
	return w.out.held.Write(p)
}

// Close ends both directions.
func (w *wire) Close() error {
	for _, l := range []*lane{w.in, w.out} {
		l.mu.Lock()
		l.closed = true
		l.filled.Broadcast()
		l.mu.Unlock()
	}
	return nil
}

// SetWriteDeadline does nothing, since writing never waits. TLS sets one when it closes.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
