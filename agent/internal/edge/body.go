package edge

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// requestBody is a client's body as the transport sees it.
type requestBody struct {
	src    io.Reader
	in     *http.Request
	out    *http.Request // gets the trailers
	count  atomic.Int64  // bytes read
	closed atomic.Bool   // the handler is about to return
	ended  atomic.Bool   // read to its end
	failed atomic.Bool   // the client broke off, or sent something malformed
}

var errHandlerReturned = errors.New("request body read after the response")

func (b *requestBody) init(in, out *http.Request) {
	b.src, b.in, b.out = in.Body, in, out
	for key := range in.Trailer {
		if !ours(key) && !hopByHop(key) {
			if out.Trailer == nil {
				out.Trailer = make(http.Header)
			}
			out.Trailer[key] = nil // announces it
		}
	}
}

func (b *requestBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, errHandlerReturned
	}
	n, err := b.src.Read(p)
	b.count.Add(int64(n))
	if err == io.EOF {
		for key := range b.out.Trailer {
			b.out.Trailer[key] = b.in.Trailer[key]
		}
		b.ended.Store(true)
	} else if err != nil {
		b.failed.Store(true)
	}
	return n, err
}

// Close does nothing: the transport closes the body when a connection can't be
// made, and then another target is tried with it.
func (b *requestBody) Close() error { return nil }

// bodyGrace is how long a client that got its response early may go on
// sending before its connection is closed.
const bodyGrace = 5 * time.Second

// finish makes sure that nothing reads the body after the handler, and that a
// read that waits for a silent client doesn't hold up the connection's end.
func (b *requestBody) finish(w http.ResponseWriter, r *http.Request, aborted bool) {
	if b.src == nil {
		return
	}
	b.closed.Store(true)
	if b.ended.Load() || r.ProtoMajor != 1 {
		return
	}
	deadline := time.Now()
	if !aborted {
		deadline = deadline.Add(bodyGrace)
	}
	http.NewResponseController(w).SetReadDeadline(deadline)
}

// leaveBody is for answers that don't depend on the body: they leave before the
// server looks for its end, and a client that never sends it is not waited for.
func leaveBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.ProtoMajor != 1 {
		return
	}
	rc := http.NewResponseController(w)
	rc.EnableFullDuplex()
	rc.SetReadDeadline(time.Now().Add(bodyGrace))
}

// respond sends the backend's response. An error means that it is incomplete.
func (x *exchange) respond(res *http.Response) error {
	h := x.w.Header()
	responseHeader(h, res.Header)
	announced := len(res.Trailer)
	for key := range res.Trailer {
		h.Add("Trailer", key)
	}
	x.status = res.StatusCode
	x.w.WriteHeader(res.StatusCode)
	if res.Body != http.NoBody {
		c := x.edge.bufs.copier.get()
		n, err := c.copy(x.w, res)
		x.edge.bufs.copier.put(c)
		x.sent = n
		if err != nil {
			return err
		}
	}
	if len(res.Trailer) == 0 {
		return nil
	}
	// Sending the header before the trailers are set keeps net/http from
	// computing a Content-Length, which excludes trailers.
	http.NewResponseController(x.w).Flush()
	for key, values := range res.Trailer {
		if len(res.Trailer) != announced {
			key = http.TrailerPrefix + key
		}
		h[key] = values
	}
	return nil
}

// headerDelay is how long a response header waits for the first bytes of the
// body, to leave in one piece with them.
const headerDelay = 2 * time.Millisecond

// copier copies a response body and sends on at once what has arrived: a
// response of known length keeps bytes in buffers only while more of them are
// being read.
type copier struct {
	buf   [32 << 10]byte
	timer *time.Timer // nil until first needed

	mu      sync.Mutex // guards following
	w       http.ResponseWriter
	pending bool // the header is not sent yet, and is to be sent by the timer
}

func (c *copier) flushHeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending {
		c.pending = false
		http.NewResponseController(c.w).Flush()
	}
}

func (c *copier) copy(w http.ResponseWriter, res *http.Response) (n int64, err error) {
	c.mu.Lock()
	c.w = w
	c.pending = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.w, c.pending = nil, false // a timer that fires late finds nothing to do
		c.mu.Unlock()
	}()
	switch {
	case isStream(res):
		c.flushHeader()
	case c.timer == nil:
		c.timer = time.AfterFunc(headerDelay, c.flushHeader)
		defer c.timer.Stop()
	default:
		c.timer.Reset(headerDelay)
		defer c.timer.Stop()
	}
	for {
		nr, rerr := res.Body.Read(c.buf[:])
		if nr > 0 {
			werr := c.write(c.buf[:nr], res.ContentLength < 0 || (nr < len(c.buf) && n+int64(nr) < res.ContentLength))
			n += int64(nr)
			if werr != nil {
				return n, werr
			}
		}
		if rerr == io.EOF {
			return n, nil
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

func (c *copier) write(p []byte, flush bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending {
		c.pending = false
		c.timer.Stop()
	}
	if _, err := c.w.Write(p); err != nil {
		return err
	}
	if flush {
		return http.NewResponseController(c.w).Flush()
	}
	return nil
}

// isStream reports whether the client waits for the header itself.
func isStream(res *http.Response) bool {
	ct := res.Header.Get("Content-Type")
	if ct == "" || res.ContentLength >= 0 {
		return false
	}
	if strings.HasPrefix(ct, "application/grpc") {
		return true
	}
	base, _, _ := mime.ParseMediaType(ct)
	return base == "text/event-stream"
}
