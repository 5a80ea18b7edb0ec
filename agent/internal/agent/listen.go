package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/server"
)

// bound is a server and the listener that it is to serve.
type bound struct {
	server   *http.Server
	listener net.Listener
}

func httpServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
}

// listen opens what the configuration asks for, all or nothing.
func listen(c Config, admin *server.Server) (opened []bound, err error) {
	defer func() {
		if err != nil {
			for _, l := range opened {
				_ = l.listener.Close() // the first error is told
			}
		}
	}()
	socket, err := listenSocket(c)
	if err != nil {
		return opened, err
	}
	opened = append(opened, bound{httpServer(admin.Local()), socket})
	if c.Listen != "" {
		remote, err := listenTLS(c)
		if err != nil {
			return opened, err
		}
		opened = append(opened, bound{httpServer(admin.Remote()), remote})
	}
	if c.MetricsListen != "" {
		metrics, err := net.Listen("tcp", c.MetricsListen)
		if err != nil {
			return opened, fmt.Errorf("metrics_listen: %w", err)
		}
		opened = append(opened, bound{httpServer(telemetryOnly(admin.Local())), metrics})
	}
	return opened, nil
}

// telemetryOnly lets through what has no secret and changes nothing.
func telemetryOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case api.PathHealth, api.PathReady, api.PathMetrics:
			h.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// listenSocket opens the Unix socket, in place of one that an agent which died left behind.
func listenSocket(c Config) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	info, err := os.Lstat(c.Socket)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("socket: %s is there and is no socket; move it away, or set another path", c.Socket)
	case err == nil:
		if conn, err := net.DialTimeout("unix", c.Socket, time.Second); err == nil {
			_ = conn.Close() // it was only asked whether somebody answers
			return nil, fmt.Errorf("socket: another agent answers at %s; stop it, or set another path", c.Socket)
		}
		if err := os.Remove(c.Socket); err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("socket: %w", err)
	}
	listener, err := net.Listen("unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	if err := os.Chmod(c.Socket, c.mode); err != nil {
		return nil, errors.Join(fmt.Errorf("socket_mode: %w", err), listener.Close())
	}
	return listener, nil
}

func listenTLS(c Config) (net.Listener, error) {
	certificate, key := c.CertificateFile, c.KeyFile
	if certificate == "" {
		certificate, key = filepath.Join(c.StateDir, "api.pem"), filepath.Join(c.StateDir, "api.key")
		if err := selfSigned(certificate, key, c.Listen); err != nil {
			return nil, fmt.Errorf("making the API's certificate: %w", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("certificate_file and key_file: %w", err)
	}
	listener, err := tls.Listen("tcp", c.Listen, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// selfSignedLife is how long a self-signed pair is good for. It is trusted by its file alone, so it may live long.
const selfSignedLife = 10 * 365 * 24 * time.Hour

// selfSigned makes a pair for the API where there is none yet. Clients trust the certificate by its file.
func selfSigned(certificate, key, address string) error {
	if _, err := os.Stat(certificate); err == nil {
		return nil
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "postern agent " + name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(selfSignedLife),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost", name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}
