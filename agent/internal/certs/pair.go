// Package certs makes, checks and renews certificates. A fault stays with the certificate that has it: another one is never
// affected, and what was issued before is served as long as it is good.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
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
	if p == nil {
		return &InvalidCertificateError{What: "there is none"}
	}
	leaf := p.TLS.Leaf
	switch {
	case now.Before(leaf.NotBefore):
		return &InvalidCertificateError{What: fmt.Sprintf("it is not valid before %s", leaf.NotBefore.Format(time.RFC3339))}
	case !now.Before(leaf.NotAfter):
		return &InvalidCertificateError{What: fmt.Sprintf("it expired at %s", leaf.NotAfter.Format(time.RFC3339))}
	}
	if !serves(leaf) {
		return &InvalidCertificateError{What: "it is not for servers; its extended key usage must have serverAuth"}
	}
	for _, name := range names {
		if err := leaf.VerifyHostname(name); err != nil {
			return &InvalidCertificateError{What: fmt.Sprintf("it does not cover %s: %v", name, err)}
		}
	}
	return nil
}

// serves reports whether a certificate is for servers. One that does not say is for everything (RFC 5280, section 4.2.1.12).
func serves(leaf *x509.Certificate) bool {
	if len(leaf.ExtKeyUsage) == 0 && len(leaf.UnknownExtKeyUsage) == 0 {
		return true
	}
	return slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
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
