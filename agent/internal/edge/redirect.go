package edge

import (
	"net"
	"net/http"
	"strings"
	"time"
)

const plainTimeout = 10 * time.Second

// newRedirectServer answers port 80, with redirections alone (X3).
func (e *Edge) newRedirectServer() *webServer {
	h := &http.Server{
		Handler:      http.HandlerFunc(e.serveRedirect),
		ReadTimeout:  plainTimeout,
		WriteTimeout: plainTimeout,
	}
	return e.startServer("http", h, func(ln net.Listener) error { return h.Serve(ln) })
}

func (e *Edge) serveRedirect(w http.ResponseWriter, r *http.Request) {
	defer holdConn(r).release()
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.URL.Path, "/") {
		answer(w, r, http.StatusBadRequest, "The request target must be a path.\n")
		return
	}
	p := e.current.Load().redirect
	name := hostName(r.Host)
	if p == nil || !p.names[name] {
		answer(w, r, http.StatusNotFound, "Nothing is served under this name.\n")
		return
	}
	redirect(w, name, r)
}

// redirect sends the client to the same path and query of host, with the same
// method and body: 308 allows no change of method (RFC 9110 section 15.4.9).
func redirect(w http.ResponseWriter, host string, r *http.Request) {
	leaveBody(w, r)
	u := *r.URL
	u.Scheme, u.Host, u.User, u.Opaque = "https", host, nil, ""
	w.Header().Set("Location", u.String())
	w.WriteHeader(http.StatusPermanentRedirect)
}
