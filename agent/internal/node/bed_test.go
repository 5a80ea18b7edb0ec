package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.ApplyEnv()
	os.Exit(m.Run())
}

const patience = 60 * time.Second

// memState is a State in memory, which can be told to fail.
type memState struct {
	mu     sync.Mutex
	values map[string][]byte
	fail   func(op, key string) error
}

func newState() *memState { return &memState{values: map[string][]byte{}} }

func (s *memState) failing(op, key string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(op, key)
}

func (s *memState) setFail(fail func(op, key string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *memState) Read(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failing("read", key); err != nil {
		return nil, err
	}
	value, ok := s.values[key]
	if !ok {
		return nil, ErrNoState
	}
	return bytes.Clone(value), nil
}

func (s *memState) Write(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failing("write", key); err != nil {
		return err
	}
	if value == nil {
		delete(s.values, key)
		return nil
	}
	s.values[key] = bytes.Clone(value)
	return nil
}

func (s *memState) Clear(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.values)
	return nil
}

// bed is a Headscale server for one test.
type bed struct {
	*testbed.Headscale
	dir string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "pn") // short: a socket lies in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	server, err := testbed.StartHeadscale(ctx, testbed.HeadscaleOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Stop() }) // a test may have stopped it
	b := &bed{Headscale: server, dir: dir}
	if _, err := b.CreateUser(ctx, "ops"); err != nil {
		t.Fatal(err)
	}
	policy := `{"tagOwners":{"tag:ingress":["ops@"],"tag:client":["ops@"]},
		"grants":[{"src":["tag:client"],"dst":["tag:ingress"],"ip":["*"]}]}`
	if err := b.SetPolicy(ctx, policy); err != nil {
		t.Fatal(err)
	}
	return b
}

// call asks Headscale's API.
func (b *bed) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, b.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+b.APIKey)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s: %w", method, path, answer.Status, text, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// mint makes a single-use key for a tag that ends after life.
func (b *bed) mint(ctx context.Context, tag string, life time.Duration) (string, error) {
	var out struct{ PreAuthKey struct{ Key string } }
	err := b.call(ctx, http.MethodPost, "/api/v1/preauthkey", map[string]any{
		"reusable": false, "aclTags": []string{tag}, "expiration": time.Now().Add(life).Format(time.RFC3339Nano),
	}, &out)
	return out.PreAuthKey.Key, err
}

// rig is a node under test. It echoes on port 7000 while it is up.
type rig struct {
	t     *testing.T
	node  *Node
	state *memState
	dir   string
	url   string
	// minted and ups count calls; up is the last.
	minted, ups, downs atomic.Int64
	up                 atomic.Pointer[Up]
	mint               atomic.Pointer[func(context.Context) (string, error)]
	stop               func()
	log                *lockedBuffer
}

// lockedBuffer is a buffer that several goroutines write to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *bed) rig(t *testing.T, hostname string) *rig {
	t.Helper()
	r := &rig{t: t, url: b.URL, state: newState(), dir: filepath.Join(t.TempDir(), hostname), log: new(lockedBuffer)}
	r.setMint(func(ctx context.Context) (string, error) { return b.mint(ctx, "tag:ingress", time.Minute) })
	r.renew(hostname)
	return r
}

func (r *rig) setMint(mint func(context.Context) (string, error)) { r.mint.Store(&mint) }

// renew makes another node of the same identity, as a restart of the process would.
func (r *rig) renew(hostname string) {
	r.node = New(Config{
		Hostname: hostname, ControlURL: r.url, Dir: r.dir, State: r.state,
		MintKey: func(ctx context.Context) (string, error) {
			r.minted.Add(1)
			return (*r.mint.Load())(ctx)
		},
		Up:   r.attach,
		Down: func() { r.downs.Add(1) },
		Log:  slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	r.node.limits.firstPause, r.node.limits.longestPause = 50*time.Millisecond, 500*time.Millisecond
	r.node.limits.look = 100 * time.Millisecond
}

// attach echoes on port 7000.
func (r *rig) attach(up *Up) {
	r.up.Store(up)
	r.ups.Add(1)
	listener, err := up.Server.Listen("tcp", ":7000")
	if err != nil {
		r.t.Errorf("listening: %v", err)
		return
	}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
}

// start runs the node; stop ends it and waits.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	node := r.node
	go func() {
		defer close(done)
		if err := node.Run(ctx); err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	r.t.Cleanup(r.stop)
}

// await waits for an observation.
func (r *rig) await(what string, ok func(Observation) bool) Observation {
	r.t.Helper()
	limit := time.After(patience)
	for {
		seen := r.node.Observe()
		if ok(seen) {
			return seen
		}
		select {
		case <-r.node.Changed():
		case <-limit:
			r.t.Fatalf("no %s; seen %+v\n%s", what, r.node.Observe(), tail(r.log.String()))
		}
	}
}

func tail(text string) string {
	const longest = 6000
	return text[max(0, len(text)-longest):]
}

func (r *rig) awaitPhase(p Phase) Observation {
	r.t.Helper()
	return r.await(string(p), func(o Observation) bool { return o.Phase == p })
}

func (b *bed) peer(t *testing.T) *testbed.Peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key, err := b.mint(ctx, "tag:client", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := testbed.StartPeer(ctx, b.Headscale, "client", key, filepath.Join(t.TempDir(), "client"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return peer
}

// echo proves that a peer reaches the node, within limit.
func echo(ctx context.Context, peer *testbed.Peer, address string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return testbed.Eventually(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		c, err := peer.Dial(attempt, "tcp", net.JoinHostPort(address, "7000"))
		if err != nil {
			return err
		}
		defer c.Close()
		return echoOn(c)
	})
}

func echoOn(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if string(answer) != "hello" {
		return errors.New("the echo is " + string(answer))
	}
	return nil
}
