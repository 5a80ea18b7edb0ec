package edge

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"net"
	"strings"
)

// nameTLS is how one name is answered: its certificate and the TLS
// configuration that offers it.
type nameTLS struct {
	cert   *tls.Certificate
	config *tls.Config
}

// orNew returns n if it holds the same certificate.
func (n *nameTLS) orNew(base *tls.Config, name string, cert *tls.Certificate) *nameTLS {
	if n != nil && n.cert == cert {
		return n
	}
	return newNameTLS(base, name, cert)
}

// newNameTLS binds session tickets to the name and the certificate: a session
// begun under another name or an older certificate is not resumed, so every
// new handshake sees the current certificate and a withdrawn name stays
// withdrawn. The ticket keys are base's, which rotate daily and outlive snapshots.
func newNameTLS(base *tls.Config, name string, cert *tls.Certificate) *nameTLS {
	h := sha256.New()
	h.Write([]byte(name))
	for _, der := range cert.Certificate {
		h.Write([]byte{0})
		h.Write(der)
	}
	binding := h.Sum([]byte("postern-name:"))

	config := base.Clone()
	config.GetConfigForClient = nil
	config.GetCertificate = nil
	config.Certificates = []tls.Certificate{*cert}
	config.WrapSession = func(cs tls.ConnectionState, ss *tls.SessionState) ([]byte, error) {
		ss.Extra = append(ss.Extra, binding)
		return base.EncryptTicket(cs, ss)
	}
	config.UnwrapSession = func(ticket []byte, cs tls.ConnectionState) (*tls.SessionState, error) {
		ss, err := base.DecryptTicket(ticket, cs)
		if err != nil || ss == nil {
			return nil, err
		}
		for _, extra := range ss.Extra {
			if bytes.Equal(extra, binding) {
				return ss, nil
			}
		}
		return nil, nil // a full handshake instead
	}
	return &nameTLS{cert: cert, config: config}
}

// baseTLS is for clients that name no known host: GetCertificate without
// certificate and without error makes crypto/tls send unrecognized_name.
func baseTLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil },
	}
}

// tlsFor is the base configuration's GetConfigForClient.
func (e *Edge) tlsFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	web := e.current.Load().web
	if web == nil || hello.ServerName == "" {
		return nil, nil
	}
	n := web.certificate(foldName(hello.ServerName))
	if n == nil {
		return nil, nil
	}
	return n.config, nil
}

// foldName brings a DNS name to the form of the snapshot: lower case, no trailing dot.
func foldName(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// hostName returns the name in a Host header, folded. What is not a name with
// an optional port comes back as something that no name equals.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && isDigits(host[i+1:]) {
		host = host[:i]
	}
	return foldName(host)
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// hostIP returns the address of a "host:port" without port and IPv6 zone.
func hostIP(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	host, _, _ = strings.Cut(host, "%")
	return host
}
