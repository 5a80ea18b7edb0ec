package edge

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestServerSentEvents: each event arrives before the next one is sent (X4).
func TestServerSentEvents(t *testing.T) {
	for _, contentType := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "application/grpc+proto", "application/json", ""} {
		both(t, func(t *testing.T, h2 bool) {
			next := make(chan struct{})
			f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = []string{contentType}
				rc := http.NewResponseController(w)
				rc.Flush() // the header alone
				for i := range 5 {
					select {
					case <-next:
					case <-r.Context().Done():
						return
					}
					fmt.Fprintf(w, "data: %d\n\n", i)
					rc.Flush()
				}
			}, "a.test"))
			res, err := f.client(t, h2).Get("https://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			br := bufio.NewReader(res.Body)
			for i := range 5 {
				next <- struct{}{}
				line, err := br.ReadString('\n')
				if want := fmt.Sprintf("data: %d\n", i); line != want || err != nil {
					t.Fatalf("%q, %v; want %q", line, err, want)
				}
				br.ReadString('\n')
			}
		})
	}
}

// TestKnownLengthIsNotHeldBack: a slow body with Content-Length arrives as it comes.
func TestKnownLengthIsNotHeldBack(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		next := make(chan struct{})
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "4")
			rc := http.NewResponseController(w)
			rc.Flush()
			for range 4 {
				<-next
				w.Write([]byte("x"))
				rc.Flush()
			}
		}, "a.test"))
		res, err := f.client(t, h2).Get("https://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for range 4 {
			next <- struct{}{}
			if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTrailers(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		var got http.Header
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Announced")
			io.Copy(w, r.Body)
			got = r.Trailer
			w.Header().Set("X-Announced", "1")
			w.Header().Set(http.TrailerPrefix+"X-Surprise", "2")
		}, "a.test"))
		r, _ := http.NewRequest("POST", "https://a.test/", io.NopCloser(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Up": {"3"}, "Tailscale_user-Login": {"eve"}}
		res, err := f.client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(b) != "body" {
			t.Fatalf("%q, %v", b, err)
		}
		if d := cmp.Diff(http.Header{"X-Announced": {"1"}, "X-Surprise": {"2"}}, res.Trailer); d != "" {
			t.Errorf("response trailers (-want +got):\n%s", d)
		}
		if d := cmp.Diff(http.Header{"X-Up": {"3"}}, got); d != "" {
			t.Errorf("request trailers (-want +got):\n%s", d)
		}
	})
}

// TestTrailersWithoutBody: how gRPC reports an error.
func TestTrailersWithoutBody(t *testing.T) {
	f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		w.Header().Set("Grpc-Status", "5")
	}, "a.test"))
	res, _ := get(t, f.client(t, true), "https://a.test/")
	if res.Trailer.Get("Grpc-Status") != "5" {
		t.Errorf("trailers %v", res.Trailer)
	}
}

// TestLargeBodies streams 64 MiB up and down at once.
func TestLargeBodies(t *testing.T) {
	const size = 64 << 20
	both(t, func(t *testing.T, h2 bool) {
		for _, length := range []int64{-1, size} {
			f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
				http.NewResponseController(w).EnableFullDuplex()
				if r.ContentLength >= 0 {
					w.Header().Set("Content-Length", fmt.Sprint(r.ContentLength))
				}
				io.Copy(w, r.Body)
			}, "a.test"))
			block := make([]byte, 1<<20)
			rand.Read(block)
			sent, got := sha256.New(), sha256.New()
			body := io.TeeReader(io.LimitReader(&repeat{block: block}, size), sent)
			r, _ := http.NewRequest("POST", "https://a.test/", body)
			r.ContentLength = length
			res, err := f.client(t, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(got, res.Body)
			res.Body.Close()
			if err != nil || n != size || res.ContentLength != length || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
				t.Errorf("length %d: %d bytes, Content-Length %d, %v, or the digests differ", length, n, res.ContentLength, err)
			}
		}
	})
}

// repeat yields a block again and again, shifted so that no two megabytes are equal.
type repeat struct {
	block []byte
	pos   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.block[r.pos%len(r.block):])
	r.pos += n + 1
	return n, nil
}

// TestBackendBreakingOff: a body that is cut short must not look complete.
func TestBackendBreakingOff(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		for path, head := range map[string]string{
			"/chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
			"/length":  "Content-Length: 100\r\n\r\nhello",
		} {
			f := start(t, Options{}, webAt(t, []string{serveTCP(t, func(c *net.TCPConn) {
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head)
			})}, "a.test"))
			res, err := f.client(t, h2).Get("https://a.test" + path)
			if err != nil {
				continue
			}
			b, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err == nil {
				t.Errorf("%s: a clean end after %q", path, b)
			}
		}
	})
}

// TestEarlyResponse: a backend that refuses an upload halfway. The client
// waits for the answer before it goes on.
func TestEarlyResponse(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			io.ReadFull(r.Body, make([]byte, 4))
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			http.NewResponseController(w).Flush()
		}, "a.test"))
		pr, pw := io.Pipe()
		r, _ := http.NewRequest("POST", "https://a.test/", pr)
		go pw.Write([]byte("part"))
		defer pw.Close()
		res, err := f.client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}
