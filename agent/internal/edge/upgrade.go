package edge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// upgradeProtocol returns what a client wants to switch to, in lower case, or "".
// HTTP/1.0 and HTTP/2 have no upgrades.
func upgradeProtocol(r *http.Request) string {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 || !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") {
		return ""
	}
	return strings.ToLower(strings.Join(r.Header["Upgrade"], ", "))
}

// upgrade serves a WebSocket handshake and then the tunnel. It does not use
// the transport: the connection becomes the tunnel, and bytes that follow the
// request early have to reach the backend.
func (x *exchange) upgrade() {
	if x.in.Method != http.MethodGet || x.in.ContentLength != 0 {
		x.edge.opts.Metrics.Rejected(x.rt.expose, RejectMalformed)
		x.refuse(http.StatusBadRequest, "A websocket handshake is a GET without body.\n")
		return
	}
	ctx := x.in.Context()
	backend, err := x.edge.dialAny(ctx, "tcp", x.rt.backend.rotation)
	if err != nil {
		x.commit()
		x.fail(err)
		return
	}
	// Whatever ends the client's connection ends this one.
	stop := context.AfterFunc(ctx, func() { abort(backend) })
	defer stop()
	limited := &io.LimitedReader{R: backend, N: maxResponseHeader}
	br := bufio.NewReader(limited)
	res, err := x.handshake(backend, br)
	x.commit()
	switch {
	case err != nil:
		backend.Close()
		x.fail(err)
	case res.StatusCode != http.StatusSwitchingProtocols:
		defer backend.Close()
		limited.N = math.MaxInt64
		if err := x.respond(res); err != nil {
			panic(http.ErrAbortHandler)
		}
	default:
		x.tunnel(res, backend, br)
	}
}

// handshake sends the request and reads the response to it.
func (x *exchange) handshake(backend net.Conn, br *bufio.Reader) (*http.Response, error) {
	x.url.Host = x.in.Host // of no consequence: Host is in x.out
	x.out.Header["Connection"] = []string{"Upgrade"}
	x.out.Header["Upgrade"] = []string{"websocket"}
	if err := x.out.Write(backend); err != nil {
		return nil, fmt.Errorf("sending the handshake: %w", err)
	}
	for {
		res, err := http.ReadResponse(br, x.out)
		if err != nil {
			return nil, fmt.Errorf("reading the handshake's response: %w", err)
		}
		if res.StatusCode >= 200 {
			return res, nil
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			if !strings.EqualFold(res.Header.Get("Upgrade"), "websocket") {
				return nil, fmt.Errorf("backend switched to %q instead of websocket", res.Header.Get("Upgrade"))
			}
			return res, nil
		}
		x.interim(res.StatusCode, textproto.MIMEHeader(res.Header))
	}
}

// tunnel answers 101 and copies until both directions have ended.
func (x *exchange) tunnel(res *http.Response, backend net.Conn, br *bufio.Reader) {
	// Lifts the deadlines too.
	client, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		backend.Close()
		x.fail(fmt.Errorf("taking over the connection: %w", err))
		return
	}
	x.status = http.StatusSwitchingProtocols
	h := make(http.Header)
	responseHeader(h, res.Header)
	delete(h, "Content-Type")
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = []string{"websocket"}
	rw.Writer.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	h.Write(rw.Writer)
	rw.Writer.WriteString("\r\n")
	if err := rw.Writer.Flush(); err != nil {
		abort(backend)
		client.Close()
		return
	}
	x.edge.opts.Metrics.Opened(x.rt.expose, "websocket")
	up, down, err := x.edge.bufs.tunnel(
		end{conn: client, early: buffered(rw.Reader)},
		end{conn: backend, early: buffered(br)},
	)
	x.edge.opts.Metrics.Closed(x.rt.expose, "websocket", up, down)
	if err != nil {
		x.edge.opts.Log.Debug("websocket broke off", "expose", x.rt.expose, "err", err)
	}
}

// buffered returns the bytes that r has read ahead.
func buffered(r *bufio.Reader) []byte {
	b, _ := r.Peek(r.Buffered())
	return b
}
