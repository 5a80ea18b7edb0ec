package edge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outcome is the body, or that there was none.
func outcome(c *http.Client, url string) string {
	res, err := c.Get(url)
	if err != nil {
		return "broke off"
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return "broke off"
	}
	return string(b)
}

// TestShutdownDrains: what runs finishes, what hangs is cut and counted.
func TestShutdownDrains(t *testing.T) {
	both(t, func(t *testing.T, h2 bool) {
		release, asked := make(chan struct{}), make(chan string, 4)
		f := start(t, Options{}, web(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/hangs":
				asked <- r.URL.Path
				<-r.Context().Done()
			case "/finishes":
				asked <- r.URL.Path
				<-release
				io.WriteString(w, "finished")
			}
		}, "a.test"))
		idle := f.client(t, h2)
		silent := f.dial(t, 443) // asks nothing
		results := make(chan string, 2)
		for _, path := range []string{"/finishes", "/hangs"} {
			c := f.client(t, h2)
			go func() { results <- path + " " + outcome(c, "https://a.test"+path) }()
			<-asked
		}
		get(t, idle, "https://a.test/")
		eventually(t, "all connections known", func() bool { return f.open.len() == 4 })

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type end struct {
			cut int
			err error
		}
		ended := make(chan end, 1)
		go func() { cut, err := f.Shutdown(ctx); ended <- end{cut, err} }()
		if b, err := io.ReadAll(silent); err != nil && len(b) > 0 {
			t.Errorf("silent connection read %q, %v", b, err)
		}
		close(release)
		first := <-results
		eventually(t, "the hanging one is left", func() bool { return f.open.len() == 1 })
		if err := f.Apply(&Snapshot{}); !errors.Is(err, ErrShutdown) {
			t.Errorf("Apply after Shutdown: %v", err)
		}
		if got := f.Serving(); len(got.Listeners)+len(got.Hosts) > 0 {
			t.Errorf("serving %+v", got)
		}
		cancel()
		if got := <-ended; got.cut != 1 || got.err != nil {
			t.Errorf("Shutdown: %d cut, %v", got.cut, got.err)
		}
		got := []string{first, <-results}
		slices.Sort(got)
		if d := cmp.Diff([]string{"/finishes finished", "/hangs broke off"}, got); d != "" {
			t.Error(d)
		}
	})
}

// TestShutdownCutsStreams: streams and tunnels have no end of their own.
func TestShutdownCutsStreams(t *testing.T) {
	s := web(t, wsEcho, "a.test")
	// This backend reads nothing, so the upload is stuck in the middle.
	s.TCP = map[uint16]Stream{5432: {Expose: "db", Targets: []string{serveTCP(t, echo)}}, 9: {Expose: "stuck", Targets: []string{stuckAddr(t)}}}
	s.HTTPS.Hosts["stuck.test"] = Host{Expose: "stuck", Targets: s.TCP[9].Targets}
	s.HTTPS.Certificates["stuck.test"] = ca.issue(t, "stuck.test")
	f := start(t, Options{}, s)
	if err := pingPong(f.dial(t, 5432)); err != nil {
		t.Fatal(err)
	}
	f.dialWebSocket(t, "a.test")
	var wg sync.WaitGroup
	stuck := f.dial(t, 9)
	wg.Go(func() { io.Copy(stuck, zeros{}) })
	wg.Go(func() {
		if res, err := f.client(t, false).Post("https://stuck.test/", "", io.LimitReader(zeros{}, 1<<30)); err == nil {
			res.Body.Close()
		}
	})
	eventually(t, "all under way", func() bool {
		n := 0
		for _, o := range f.open.all() {
			if wc, ok := o.(*webConn); !ok || wc.used.Load() {
				n++
			}
		}
		return n == 4
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if cut, err := f.Shutdown(ctx); cut != 4 || err != nil {
		t.Errorf("Shutdown: %d cut, %v", cut, err)
	}
	wg.Wait()
	if cut, err := f.Shutdown(t.Context()); cut != 0 || err != nil {
		t.Errorf("second Shutdown: %d cut, %v", cut, err)
	}
}
