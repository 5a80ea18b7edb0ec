package edge

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"sync"
	"time"
)

// exchange is one request and its response. It is not pooled: the transport
// may look at the request after the handler has returned.
type exchange struct {
	edge  *Edge
	rt    *hostRoute
	in    *http.Request
	w     http.ResponseWriter
	out   *http.Request
	url   url.URL
	trace httptrace.ClientTrace
	body  requestBody

	status int   // 0 until committed
	sent   int64 // bytes of response body

	mu        sync.Mutex // guards following, and w until committed
	committed bool       // no interim response may follow
}

// proxy serves one request from the backend of rt.
func (e *Edge) proxy(w http.ResponseWriter, r *http.Request, rt *hostRoute) {
	start := time.Now()
	x := &exchange{edge: e, rt: rt, in: r, w: w}
	defer func() {
		rt.backend.release()
		e.opts.Metrics.Request(rt.expose, x.status, x.body.count.Load(), x.sent, time.Since(start))
	}()
	switch protocol := upgradeProtocol(r); protocol {
	case "":
		x.prepare()
		x.roundTrip()
	case "websocket":
		x.prepare()
		x.upgrade()
	default:
		// h2c would be a tunnel past every rule that is checked per request.
		e.opts.Metrics.Rejected(rt.expose, RejectMalformed)
		x.refuse(http.StatusNotImplemented, "The only upgrade that is supported here is websocket.\n")
	}
}

// prepare builds the request for the backend, without target.
func (x *exchange) prepare() {
	ctx := x.in.Context()
	if x.in.ProtoAtLeast(1, 1) {
		x.trace.Got1xxResponse = x.interim
		ctx = httptrace.WithClientTrace(ctx, &x.trace)
	}
	x.url = url.URL{
		Scheme:     "http",
		Path:       x.in.URL.Path,
		RawPath:    x.in.URL.RawPath,
		RawQuery:   x.in.URL.RawQuery, // as it is: we don't interpret it
		ForceQuery: x.in.URL.ForceQuery,
	}
	out := x.in.WithContext(ctx)
	out.URL = &x.url
	out.Header = requestHeader(x.in)
	out.RequestURI = ""
	out.TransferEncoding = nil
	out.Close = false
	out.Trailer = nil
	out.Body = nil
	if x.in.ContentLength != 0 {
		x.body.init(x.in, out)
		out.Body = &x.body
	}
	x.out = out
}

func (x *exchange) roundTrip() {
	if x.out.Body != nil && x.in.ProtoMajor == 1 {
		// Else the server reads all of the body before it sends a header.
		http.NewResponseController(x.w).EnableFullDuplex()
	}
	res, err := x.send()
	x.commit()
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body.Close()
		err = errUnasked
	}
	if err != nil {
		x.body.finish(x.w, x.in, false)
		x.fail(err)
		return
	}
	defer res.Body.Close()
	err = x.respond(res)
	x.body.finish(x.w, x.in, err != nil)
	if err != nil {
		x.edge.opts.Log.Debug("response broke off", "expose", x.rt.expose, "err", err)
		panic(http.ErrAbortHandler) // a clean end would make it look complete
	}
}

var errUnasked = errors.New("backend switched protocols without being asked to")

// send tries the targets in turn until one takes the connection. What was
// sent is never sent again.
func (x *exchange) send() (*http.Response, error) {
	r := x.rt.backend.rotation
	if len(r.targets) == 0 {
		return nil, errNoTargets
	}
	turn := r.turn()
	x.url.Host = r.at(turn)
	res, err := x.rt.backend.transport.RoundTrip(x.out)
	for i := 1; i < len(r.targets) && unsent(err) && x.in.Context().Err() == nil; i++ {
		x.edge.opts.Log.Warn("trying the next target", "expose", x.rt.expose, "err", err)
		u := x.url // the transport may still look at the former one
		u.Host = r.at(turn + uint32(i))
		x.out = x.out.WithContext(x.out.Context())
		x.out.URL = &u
		x.body.out = x.out
		res, err = x.rt.backend.transport.RoundTrip(x.out)
	}
	return res, err
}

// unsent reports whether the connection could not be made.
func unsent(err error) bool {
	var de *dialError
	return errors.As(err, &de)
}

// interim passes a 1xx response on. 100 is sent by net/http when the transport
// begins to read the body, which it does after the backend's own 100.
func (x *exchange) interim(code int, header textproto.MIMEHeader) error {
	if code == http.StatusContinue {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.committed {
		return nil
	}
	h := x.w.Header()
	responseHeader(h, http.Header(header))
	delete(h, "Content-Type")
	x.w.WriteHeader(code)
	clear(h)
	return nil
}

// commit ends the time of interim responses.
func (x *exchange) commit() {
	x.mu.Lock()
	x.committed = true
	x.mu.Unlock()
}

// fail answers a request that got no response. The client is told which
// expose it is and nothing about the backend.
func (x *exchange) fail(err error) {
	if x.in.Context().Err() != nil {
		panic(http.ErrAbortHandler) // nobody is listening
	}
	if x.body.failed.Load() {
		x.refuse(http.StatusBadRequest, "The request body broke off.\n")
		return
	}
	x.edge.opts.Log.Warn("no response from the backend", "expose", x.rt.expose, "err", err)
	if unsent(err) || errors.Is(err, errNoTargets) {
		x.edge.opts.Metrics.Rejected(x.rt.expose, RejectUnreachable)
		x.refuse(http.StatusBadGateway, fmt.Sprintf("The backend of %q can't be reached.\n", x.rt.expose))
		return
	}
	x.refuse(http.StatusBadGateway, fmt.Sprintf("The backend of %q broke off.\n", x.rt.expose))
}

func (x *exchange) refuse(code int, text string) {
	x.status = code
	answer(x.w, x.in, code, text)
}
