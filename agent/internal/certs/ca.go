package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	caLife = 10 * 365 * 24 * time.Hour
	// leafLife is what browsers and public authorities have come to.
	leafLife = 90 * 24 * time.Hour
	// backdate has a certificate be good for peers whose clocks are behind.
	backdate = 5 * time.Minute
)

// CA is a private certificate authority (C5). It is safe for concurrent use.
type CA struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         []byte
	// chain is what a server has to send beside a leaf: nothing for a root, which peers have.
	chain []byte
}

// CreateCA makes a CA's certificate and key.
func CreateCA(name string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the CA's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-backdate), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("making the CA's certificate: %w", err)
	}
	keyPEM, err = encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, nil
}

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// LoadCA reads a CA. The certificate must be one of a CA, and the key its own.
func LoadCA(certPEM, keyPEM []byte) (*CA, error) {
	der, err := decodePEM(certPEM, "CERTIFICATE")
	if err != nil {
		return nil, fmt.Errorf("reading the CA's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's certificate: %w", err)
	}
	if !certificate.IsCA || certificate.KeyUsage&x509.KeyUsageCertSign == 0 && certificate.KeyUsage != 0 {
		return nil, errors.New("reading the CA's certificate: it is not a CA's; give one with CA:TRUE and the right to sign certificates")
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("reading the CA's key: %w", err)
	}
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(certificate.PublicKey) {
		return nil, errors.New("reading the CA's key: it does not belong to the certificate; give the two that were made together")
	}
	ca := &CA{certificate: certificate, key: key, pem: certPEM}
	if certificate.CheckSignatureFrom(certificate) != nil {
		ca.chain = certPEM
	}
	return ca, nil
}

func parseKey(keyPEM []byte) (crypto.Signer, error) {
	var block *pem.Block
	for rest := keyPEM; ; {
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("a private key: %w", errNoPEM)
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, errors.New("it is of a kind that cannot sign")
		}
		return signer, nil
	}
}

// CertificatePEM is what clients trust.
func (ca *CA) CertificatePEM() []byte { return ca.pem }

// NotAfter is when the CA ends, and everything that it issued with it.
func (ca *CA) NotAfter() time.Time { return ca.certificate.NotAfter }

// Digest tells CAs apart.
func (ca *CA) Digest() string {
	sum := sha256.Sum256(ca.certificate.Raw)
	return hex.EncodeToString(sum[:])
}

// Issue makes a certificate for names, the first of which is its subject.
func (ca *CA) Issue(names []string, now time.Time) (*Pair, error) {
	if len(names) == 0 {
		return nil, errors.New("issuing a certificate: there is no name to issue it for")
	}
	if now.Before(ca.certificate.NotBefore) {
		return nil, fmt.Errorf("issuing for %s: the CA is not valid before %s; look at this machine's clock", names[0], ca.certificate.NotBefore.Format(time.RFC3339))
	}
	if !now.Before(ca.certificate.NotAfter) {
		return nil, fmt.Errorf("issuing for %s: the CA expired at %s; make a new one", names[0], ca.certificate.NotAfter.Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issuing for %s: %w", names[0], err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("issuing for %s: %w", names[0], err)
	}
	end := now.Add(leafLife)
	if end.After(ca.certificate.NotAfter) {
		end = ca.certificate.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject(names[0]), DNSNames: names, NotBefore: now.Add(-backdate), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("issuing for %s: %w", names[0], err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("issuing for %s: %w", names[0], err)
	}
	certPEM := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), ca.chain...)
	return ParsePair(certPEM, keyPEM)
}

// subject leaves out a name that is longer than a common name may be (RFC 5280, ub-common-name).
func subject(name string) pkix.Name {
	const longest = 64
	if len(name) > longest {
		return pkix.Name{}
	}
	return pkix.Name{CommonName: name}
}
