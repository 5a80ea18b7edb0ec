package edge

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
)

// BenchmarkHTTPS compares with a bare ReverseProxy behind the same kind of
// listener; what counts is the ratio within one run.
func BenchmarkHTTPS(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		body := make([]byte, size)
		target := serveHTTP(b, func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
		for _, h2 := range []bool{false, true} {
			for _, proxy := range []string{"reverseproxy", "edge"} {
				b.Run(fmt.Sprintf("size=%d/http2=%v/%s", size, h2, proxy), func(b *testing.B) {
					s := webAt(b, []string{target}, "a.test")
					var f *fixture
					if proxy == "edge" {
						f = start(b, Options{}, s)
					} else {
						f = bareProxy(b, target, s.HTTPS.Certificates["a.test"])
					}
					c := f.client(b, h2)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					b.SetParallelism(16)
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							res, err := c.Get("https://a.test/")
							if err != nil {
								b.Error(err)
								return
							}
							if n, _ := io.Copy(io.Discard, res.Body); n != int64(size) {
								b.Errorf("%d bytes", n)
							}
							res.Body.Close()
						}
					})
				})
			}
		}
	}
}

// bareProxy is a ReverseProxy set up as well as its documentation says.
func bareProxy(b *testing.B, target string, cert *tls.Certificate) *fixture {
	u := &url.URL{Scheme: "http", Host: target}
	tr := &http.Transport{MaxIdleConnsPerHost: maxIdlePerTarget, DisableCompression: true}
	h := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(u); r.SetXForwarded(); r.Out.Host = r.In.Host },
		Transport:  tr,
		BufferPool: &benchPool{},
	}
	n := newTestNet()
	ln, err := n.Listen("tcp", ":443")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}}
	done := make(chan struct{})
	go func() { defer close(done); srv.ServeTLS(ln, "", "") }()
	b.Cleanup(func() { srv.Close(); <-done; tr.CloseIdleConnections() })
	return &fixture{net: n}
}

type benchPool struct{ p pool[[32 << 10]byte] }

func (p *benchPool) Get() []byte  { return p.p.get()[:] }
func (p *benchPool) Put(b []byte) { p.p.put((*[32 << 10]byte)(b)) }

// BenchmarkHandshake opens a connection per request.
func BenchmarkHandshake(b *testing.B) {
	target := serveHTTP(b, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("ok")) })
	for _, proxy := range []string{"reverseproxy", "edge"} {
		b.Run(proxy, func(b *testing.B) {
			s := webAt(b, []string{target}, "a.test")
			var f *fixture
			if proxy == "edge" {
				f = start(b, Options{}, s)
			} else {
				f = bareProxy(b, target, s.HTTPS.Certificates["a.test"])
			}
			c := f.client(b, false)
			c.Transport.(*http.Transport).DisableKeepAlives = true
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					res, err := c.Get("https://a.test/")
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		})
	}
}

// BenchmarkStream pushes data through an echo, direct and through the edge,
// spliced and not.
func BenchmarkStream(b *testing.B) {
	target := serveTCP(b, echo)
	for _, path := range []string{"direct", "spliced", "copied"} {
		b.Run(path, func(b *testing.B) {
			var c net.Conn
			var err error
			if path == "direct" {
				c, err = net.Dial("tcp", target)
			} else {
				f := start(b, Options{}, nil)
				f.net.opaque = path == "copied"
				f.apply(b, tcp(target))
				c, err = net.Dial("tcp", f.net.addr(b, "tcp", 5432))
			}
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			const chunk = 256 << 10
			b.SetBytes(chunk)
			b.ResetTimer()
			go func() {
				data := make([]byte, chunk)
				for range b.N {
					c.Write(data)
				}
			}()
			if _, err := io.CopyN(io.Discard, c, int64(b.N)*chunk); err != nil {
				b.Fatal(err)
			}
		})
	}
}
