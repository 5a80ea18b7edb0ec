package edge

import (
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// hopByHop are the fields that concern one connection only (RFC 9110 section
// 7.6.1). Trailer is announced anew by net/http.
func hopByHop(key string) bool {
	switch key {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// ours reports whether a request field is one that only we may set. Backends
// see fields through CGI-like interfaces that fold whatever is not a letter or
// digit into "_", so that "tailscale_user.login" would reach them as
// "Tailscale-User-Login": every such spelling counts (X10). "Proxy" would become
// HTTP_PROXY there.
func ours(key string) bool {
	if len(key) == 0 {
		return false
	}
	switch key[0] | 0x20 {
	case 't':
		return foldsTo(key, "tailscale-", true)
	case 'x':
		return foldsTo(key, "x-forwarded-", true) || foldsTo(key, "x-real-ip", false)
	case 'f':
		return foldsTo(key, "forwarded", false)
	case 'p':
		return foldsTo(key, "proxy", false)
	}
	return false
}

// foldsTo compares key with a lower-case name, or with its beginning, as a folding backend would.
func foldsTo(key, name string, prefix bool) bool {
	if len(key) < len(name) || (!prefix && len(key) != len(name)) {
		return false
	}
	for i := range len(name) {
		c := key[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		case ('a' <= c && c <= 'z') || ('0' <= c && c <= '9'):
		default:
			c = '-'
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// requestHeader returns the fields to send to the backend. Value slices are
// shared with r.
func requestHeader(r *http.Request) http.Header {
	named := connectionOptions(r.Header)
	out := make(http.Header, len(r.Header)+4)
	for key, values := range r.Header {
		if !hopByHop(key) && !ours(key) && !named.has(key) {
			out[key] = values
		}
	}
	if httpguts.HeaderValuesContainsToken(r.Header["Te"], "trailers") {
		out["Te"] = []string{"trailers"} // the one value that concerns the next hop too
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // keeps net/http from adding its own
	}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	set := [...]string{hostIP(r.RemoteAddr), r.Host, proto}
	out["X-Forwarded-For"] = set[0:1:1]
	out["X-Forwarded-Host"] = set[1:2:2]
	out["X-Forwarded-Proto"] = set[2:3:3]
	return out
}

// responseHeader copies the fields of a backend's response.
func responseHeader(dst, src http.Header) {
	named := connectionOptions(src)
	for key, values := range src {
		if !hopByHop(key) && !named.has(key) {
			dst[key] = values
		}
	}
	if _, ok := src["Content-Type"]; !ok {
		dst["Content-Type"] = nil // keeps net/http from guessing one
	}
}

// options are the fields that a Connection field names, canonical.
type options []string

func connectionOptions(h http.Header) options {
	var o options
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.TrimString(name); name != "" {
				o = append(o, textproto.CanonicalMIMEHeaderKey(name))
			}
		}
	}
	return o
}

func (o options) has(key string) bool {
	for _, name := range o {
		if name == key {
			return true
		}
	}
	return false
}
