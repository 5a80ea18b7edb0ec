package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// today is a time within every certificate of these tests.
func today() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) }

func newCA(t *testing.T, now time.Time) *CA {
	t.Helper()
	certPEM, keyPEM, err := CreateCA("test", now)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := LoadCA(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, now time.Time, names ...string) *Pair {
	t.Helper()
	pair, err := ca.Issue(names, now)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func roots(ca *CA) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CertificatePEM())
	return pool
}

func TestIssuedCertificatesAreWhatPeersAccept(t *testing.T) {
	now := today()
	ca := newCA(t, now)
	pair := issue(t, ca, now, "shop.example.internal", "store.example.internal")
	leaf := pair.TLS.Leaf
	if leaf.Subject.CommonName != "shop.example.internal" || len(leaf.DNSNames) != 2 || leaf.IsCA {
		t.Errorf("subject %v, names %v", leaf.Subject, leaf.DNSNames)
	}
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("key %T", leaf.PublicKey)
	}
	if got := leaf.NotAfter.Sub(now); got != 90*24*time.Hour {
		t.Errorf("it is good for %s", got)
	}
	if got := now.Sub(leaf.NotBefore); got != 5*time.Minute {
		t.Errorf("it is backdated by %s", got)
	}
	for _, name := range leaf.DNSNames {
		options := x509.VerifyOptions{DNSName: name, Roots: roots(ca), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := leaf.Verify(options); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if other := issue(t, ca, now, "shop.example.internal"); other.TLS.Leaf.SerialNumber.Cmp(leaf.SerialNumber) == 0 {
		t.Error("two certificates have one serial number")
	}
	if bytes.Contains(pair.CertPEM, ca.CertificatePEM()) {
		t.Error("a root is sent to peers, which have it")
	}
	long := strings.Repeat("a", 63) + ".example.internal"
	if got := issue(t, ca, now, long).TLS.Leaf; got.Subject.CommonName != "" || got.VerifyHostname(long) != nil {
		t.Errorf("a name too long for a subject: %v %v", got.Subject, got.DNSNames)
	}
}

func TestCAIsNoMoreThanItSays(t *testing.T) {
	now := today()
	ca := newCA(t, now)
	c := ca.certificate
	if !c.IsCA || !c.MaxPathLenZero || c.MaxPathLen != 0 || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("CA %v, path length %d, usage %b", c.IsCA, c.MaxPathLen, c.KeyUsage)
	}
	if got := c.NotAfter.Sub(now).Round(24 * time.Hour); got != 3650*24*time.Hour {
		t.Errorf("it is good for %s", got)
	}
}

func TestNothingOutlivesItsCA(t *testing.T) {
	now := today()
	ca := newCA(t, now)
	late := ca.NotAfter().Add(-24 * time.Hour)
	if got := issue(t, ca, late, "a.internal"); !got.NotAfter.Equal(ca.NotAfter()) {
		t.Errorf("it ends at %s, its CA at %s", got.NotAfter, ca.NotAfter())
	}
	for when, want := range map[time.Time]string{
		ca.NotAfter():                "the CA expired",
		ca.NotAfter().Add(time.Hour): "the CA expired",
		now.Add(-24 * time.Hour):     "not valid before",
	} {
		if _, err := ca.Issue([]string{"a.internal"}, when); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("at %s: %v, want %q", when, err, want)
		}
	}
	if _, err := ca.Issue(nil, now); err == nil {
		t.Error("a certificate for nothing is issued")
	}
}

// sign makes a certificate from a template, under a parent or under itself.
func sign(t *testing.T, template, parent *x509.Certificate, public, signer any) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = today().Add(-time.Hour), today().Add(24*time.Hour)
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestIntermediateIsSentAlong(t *testing.T) {
	rootCertPEM, rootKeyPEM, err := CreateCA("root", today())
	if err != nil {
		t.Fatal(err)
	}
	root, err := LoadCA(rootCertPEM, rootKeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "between"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, MaxPathLenZero: true}
	wide := *root.certificate
	wide.MaxPathLenZero, wide.MaxPathLen = false, -1
	certPEM := sign(t, template, &wide, key.Public(), root.key)
	keyPEM, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := LoadCA(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pair := issue(t, ca, today(), "a.internal")
	if len(pair.TLS.Certificate) != 2 || pair.TLS.Leaf.DNSNames[0] != "a.internal" {
		t.Fatalf("%d certificates are sent", len(pair.TLS.Certificate))
	}
}

func TestCAsThatAreRefused(t *testing.T) {
	certPEM, keyPEM, err := CreateCA("test", today())
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := CreateCA("other", today())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := LoadCA(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	leaf := issue(t, ca, today(), "a.internal")
	key := newKey(t)
	unsigning := sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCRLSign}, nil, key.Public(), key)
	ownKey, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cert, key []byte
		want      string
	}{
		"no certificate":      {nil, keyPEM, "no PEM block"},
		"no key":              {certPEM, nil, "no PEM block"},
		"swapped":             {keyPEM, certPEM, "no PEM block"},
		"garbage in PEM":      {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), keyPEM, "reading the CA's certificate"},
		"garbage key in PEM":  {certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "reading the CA's key"},
		"another CA's key":    {certPEM, otherKey, "does not belong"},
		"a leaf":              {leaf.CertPEM, leaf.KeyPEM, "not a CA's"},
		"a CA that signs not": {unsigning, ownKey, "not a CA's"},
	} {
		if _, err := LoadCA(c.cert, c.key); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestKeysOfEveryUsualKind(t *testing.T) {
	key := newKey(t)
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := func() *x509.Certificate {
		return &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "x"}}
	}
	for name, c := range map[string]struct{ cert, key []byte }{
		"EC":  {sign(t, template(), nil, key.Public(), key), append([]byte("comment\n"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})...)},
		"RSA": {sign(t, template(), nil, rsaKey.Public(), rsaKey), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)})},
	} {
		ca, err := LoadCA(c.cert, c.key)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		issue(t, ca, today(), "a.internal")
	}
}

func TestFilesAreMadeOnceAndNeverOverwritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "issuer")
	certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	if _, err := CAFromFiles(certFile, keyFile, false, today()); err == nil || !strings.Contains(err.Error(), "create = true") {
		t.Fatalf("not there, and not to be made: %v", err)
	}
	made, err := CAFromFiles(certFile, keyFile, true, today())
	if err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{keyFile: 0o600, certFile: 0o644} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("in the folder: %v %v", entries, err)
	}
	again, err := CAFromFiles(certFile, keyFile, true, today().Add(time.Hour))
	if err != nil || again.Digest() != made.Digest() {
		t.Fatalf("another CA, %v", err)
	}
	if err := writeNew(keyFile, []byte("x"), 0o600); err == nil {
		t.Fatal("a file that is there was overwritten")
	}
}

func TestHalfACAIsToldAndLeftAlone(t *testing.T) {
	certPEM, keyPEM, err := CreateCA("test", today())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cert, key []byte
		create    bool
		want      string
	}{
		"only a certificate":           {certPEM, nil, false, "key_file"},
		"only a certificate, create":   {certPEM, nil, true, "key_file"},
		"only a key":                   {nil, keyPEM, false, "certificate_file"},
		"only a key, create":           {nil, keyPEM, true, "remove the key"},
		"a broken certificate, create": {[]byte("x"), keyPEM, true, "no PEM block"},
		"an empty key, create":         {certPEM, []byte{}, true, "no PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string][]byte{filepath.Join(dir, "ca.pem"): c.cert, filepath.Join(dir, "ca.key"): c.key}
			for path, text := range files {
				if text == nil {
					continue
				}
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := CAFromFiles(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"), c.create, today())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			for path, text := range files {
				got, err := os.ReadFile(path)
				if text == nil && !os.IsNotExist(err) || text != nil && !bytes.Equal(got, text) {
					t.Errorf("%s was changed to %q", path, got)
				}
			}
		})
	}
}
