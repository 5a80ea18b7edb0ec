// Package certs makes, checks and renews certificates. A fault stays with the certificate that has it: another one is never
// affected, and what was issued before is served as long as it is good.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"time"
)

// Pair is a certificate and its key.
type Pair struct {
	CertPEM, KeyPEM []byte
	// TLS is the pair parsed, with its leaf.
	TLS *tls.Certificate
	// NotBefore and NotAfter bound its life.
	NotBefore, NotAfter time.Time
}

// ParsePair parses a pair whose key matches its leaf.
func ParsePair(certPEM, keyPEM []byte) (*Pair, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, &InvalidCertificateError{What: err.Error()}
	}
	return &Pair{CertPEM: certPEM, KeyPEM: keyPEM, TLS: &pair, NotBefore: pair.Leaf.NotBefore, NotAfter: pair.Leaf.NotAfter}, nil
}

// RenewAt is when to renew: when a third of the life is left (C5), and up to a tenth of it earlier, so that pairs issued
// together are not renewed together. It is the same at every call.
func (p *Pair) RenewAt() time.Time {
	life := p.NotAfter.Sub(p.NotBefore)
	sum := fnv.New32a()
	_, _ = sum.Write(p.TLS.Certificate[0]) // a hash takes everything
	early := time.Duration(float64(life/10) * float64(sum.Sum32()) / (1 << 32))
	return p.NotAfter.Add(-life/3 - early)
}

// InvalidCertificateError says what is wrong with a certificate (C4).
type InvalidCertificateError struct{ What string }

func (e *InvalidCertificateError) Error() string { return "invalid certificate: " + e.What }

// Check says whether a pair may be served for names now: it is valid, and covers each (C4).
func Check(p *Pair, names []string, now time.Time) error {
	leaf := p.TLS.Leaf
	switch {
	case now.Before(leaf.NotBefore):
		return &InvalidCertificateError{What: fmt.Sprintf("it is not valid before %s", leaf.NotBefore.Format(time.RFC3339))}
	case !now.Before(leaf.NotAfter):
		return &InvalidCertificateError{What: fmt.Sprintf("it expired at %s", leaf.NotAfter.Format(time.RFC3339))}
	}
	for _, name := range names {
		if err := leaf.VerifyHostname(name); err != nil {
			return &InvalidCertificateError{What: fmt.Sprintf("it does not cover %s: %v", name, err)}
		}
	}
	return nil
}

// Handshake proves what is served for a name by a handshake in memory, verified as a peer that trusts roots would (R2).
func Handshake(ctx context.Context, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), name string, roots *x509.CertPool, now time.Time) error {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	server := tls.Server(far, &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12})
	client := tls.Client(near, &tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12, Time: func() time.Time { return now }})
	served := make(chan error, 1)
	go func() { served <- server.HandshakeContext(ctx) }()
	err := client.HandshakeContext(ctx)
	_ = near.Close() // the server may still wait for the client
	if theirs := <-served; err == nil && theirs != nil {
		err = theirs
	}
	if err != nil {
		return fmt.Errorf("handshake for %s: %w", name, err)
	}
	return nil
}

// errNoPEM says that a file holds nothing that it should.
var errNoPEM = errors.New("there is no PEM block of this kind in it")

func decodePEM(text []byte, kind string) ([]byte, error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return nil, fmt.Errorf("%s: %w", kind, errNoPEM)
		}
		if block.Type == kind {
			return block.Bytes, nil
		}
	}
}
