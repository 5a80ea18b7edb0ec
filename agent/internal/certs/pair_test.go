package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCheckSaysWhatIsWrong(t *testing.T) {
	now := today()
	ca := newCA(t, now)
	good := issue(t, ca, now, "shop.example.internal", "*.shop.example.internal")
	key := newKey(t)
	keyPEM, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := ParsePair(sign(t, &x509.Certificate{DNSNames: []string{"a.internal"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		nil, key.Public(), key), keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pair  *Pair
		names []string
		now   time.Time
		want  string
	}{
		"good":            {good, []string{"shop.example.internal"}, now, ""},
		"wildcard":        {good, []string{"shop.example.internal", "a.shop.example.internal"}, now, ""},
		"none":            {nil, nil, now, "there is none"},
		"early":           {good, nil, good.NotBefore.Add(-time.Second), "not valid before"},
		"first second":    {good, nil, good.NotBefore, ""},
		"expired":         {good, nil, good.NotAfter, "expired at"},
		"other name":      {good, []string{"shop.example.internal", "pay.example.internal"}, now, "does not cover pay.example.internal"},
		"deep wildcard":   {good, []string{"a.b.shop.example.internal"}, now, "does not cover"},
		"not for servers": {client, []string{"a.internal"}, now, "serverAuth"},
	} {
		err := Check(c.pair, c.names, c.now)
		var invalid *InvalidCertificateError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.As(err, &invalid) || !strings.Contains(invalid.What, c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestPairsThatDoNotParse(t *testing.T) {
	ca := newCA(t, today())
	a, b := issue(t, ca, today(), "a.internal"), issue(t, ca, today(), "b.internal")
	for name, c := range map[string]struct{ cert, key []byte }{
		"nothing":          {nil, nil},
		"another's key":    {a.CertPEM, b.KeyPEM},
		"swapped":          {a.KeyPEM, a.CertPEM},
		"truncated":        {a.CertPEM[:len(a.CertPEM)/2], a.KeyPEM},
		"key in the chain": {append(b.KeyPEM, '\n'), a.KeyPEM},
		"garbage":          {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), a.KeyPEM},
	} {
		_, err := ParsePair(c.cert, c.key)
		var invalid *InvalidCertificateError
		if !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "PRIVATE KEY-----\n") {
			t.Errorf("%s: the error quotes a key", name)
		}
	}
}

func FuzzParsePair(f *testing.F) {
	certPEM, keyPEM, err := CreateCA("x", today())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(certPEM, keyPEM)
	f.Add([]byte{}, []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		pair, err := ParsePair(cert, key)
		if err == nil && (pair.TLS.Leaf == nil || pair.RenewAt().After(pair.NotAfter) && pair.NotAfter.After(pair.NotBefore)) {
			t.Fatal("a pair without a leaf, or renewed after its end")
		}
		_, _ = LoadCA(cert, key) // it must not panic
	})
}

func TestRenewalStartsWithAThirdOfTheLifeLeft(t *testing.T) {
	now := today()
	ca := newCA(t, now)
	seen := map[time.Time]bool{}
	for range 20 {
		pair := issue(t, ca, now, "a.internal")
		life := pair.NotAfter.Sub(pair.NotBefore)
		left := pair.NotAfter.Sub(pair.RenewAt())
		if left < life/3 || left > life/3+life/10 {
			t.Errorf("renewed with %s of %s left", left, life)
		}
		if !pair.RenewAt().Equal(pair.RenewAt()) {
			t.Error("two answers for one pair")
		}
		again, err := ParsePair(pair.CertPEM, pair.KeyPEM)
		if err != nil || !again.RenewAt().Equal(pair.RenewAt()) {
			t.Errorf("another answer after a restart: %v", err)
		}
		seen[pair.RenewAt()] = true
	}
	if len(seen) < 15 {
		t.Errorf("20 pairs issued together are renewed at %d times", len(seen))
	}
}

func TestHandshakeProvesWhatIsServed(t *testing.T) {
	now := today()
	ca, other := newCA(t, now), newCA(t, now)
	good := issue(t, ca, now, "shop.internal")
	late := now.Add(100 * 24 * time.Hour)
	serve := func(p *Pair) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if hello.ServerName != "shop.internal" && hello.ServerName != "pay.internal" {
				return nil, errors.New("no such name")
			}
			if p == nil {
				return nil, nil
			}
			return p.TLS, nil
		}
	}
	for name, c := range map[string]struct {
		pair  *Pair
		name  string
		roots *x509.CertPool
		now   time.Time
		ok    bool
	}{
		"good":          {good, "shop.internal", roots(ca), now, true},
		"nothing":       {nil, "shop.internal", roots(ca), now, false},
		"unknown name":  {good, "unknown.internal", roots(ca), now, false},
		"other name":    {good, "pay.internal", roots(ca), now, false},
		"other CA":      {good, "shop.internal", roots(other), now, false},
		"expired":       {good, "shop.internal", roots(ca), late, false},
		"not yet valid": {good, "shop.internal", roots(ca), now.Add(-time.Hour), false},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		began := time.Now()
		err := Handshake(ctx, serve(c.pair), c.name, c.roots, c.now)
		cancel()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	stuck := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cancel()
		<-hello.Context().Done()
		return nil, hello.Context().Err()
	}
	if err := Handshake(ctx, stuck, "shop.internal", nil, today()); err == nil {
		t.Fatal("it succeeded with nothing served")
	}
}

func serveAlways(p *Pair) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.TLS, nil }
}
