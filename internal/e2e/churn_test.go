package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// pushes is how often one expose is changed.
const pushes = 200

// Changing one expose disturbs no other, and no request to its own host (X15).
func TestPushesDisturbNobody(t *testing.T) {
	c := startChain(t)
	echo := backend(t, testbed.StartEcho)
	web, other := httpBackend(t, "web"), httpBackend(t, "web")
	in := memberIngress("shop", map[string]desired.Expose{
		"db": tcpExpose(5432, echo.Address), "web": httpExpose(web.Address), "moving": tcpExpose(6000, echo.Address),
	})
	d := c.declare(t, in, nil)
	peer := c.laptop(t)
	client := c.client(t, peer, d)
	const url = "https://shop.default.example.internal/"
	reaches(t, client, url, "web")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var traffic sync.WaitGroup
	var done atomic.Int64
	run := func(what string, do func() error) {
		traffic.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", what, err)
					return
				}
				done.Add(1)
			}
		})
	}
	address := net.JoinHostPort(d.Status.Addresses[0], "5432")
	stream := dial(t, peer, address)
	run("a TCP stream", func() error { return talk(stream) })
	run("new TCP connections", func() error {
		conn, err := peer.Dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		return talk(conn)
	})
	run("requests", func() error { return get(ctx, client, url) })
	socket := dialWebSocket(ctx, t, client, url)
	run("a WebSocket", func() error { return talkWebSocket(ctx, socket) })

	c.push(t, in, []string{web.Address, other.Address})
	stop()
	_ = stream.Close()    // its reader ends
	_ = socket.CloseNow() // its reader ends
	traffic.Wait()
	t.Logf("%d exchanges during %d pushes", done.Load(), pushes)
	if done.Load() < pushes {
		t.Errorf("only %d exchanges during %d pushes: nothing was tested", done.Load(), pushes)
	}
}

// push changes the port of one expose, and every other time the target of another's host too.
func (c *chain) push(t *testing.T, in *desired.Ingress, targets []string) {
	t.Helper()
	var last *api.Document
	for n := range pushes {
		moving := in.Exposes["moving"]
		moving.Port = ptr(int64(6000 + n%7))
		if n%5 == 0 {
			moving.Mode = ptr(desired.ModeUDP)
		} else {
			moving.Mode = nil
		}
		in.Exposes["moving"] = moving
		in.Exposes["web"] = httpExpose(targets[n/2%2])
		d, err := c.update(t, in)
		if err != nil {
			t.Fatalf("push %d: %v", n, err)
		}
		last = d
	}
	c.ready(t, in.Key(), last.Revision)
}

func dial(t *testing.T, peer *testbed.Peer, address string) net.Conn {
	t.Helper()
	conn, err := peer.Dial(deadline(t, time.Minute), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func talk(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "ping"); err != nil {
		return err
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != "ping" {
		return fmt.Errorf("got %q", answer)
	}
	return nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(answer.Status))
	}
	return errors.Join(err, answer.Body.Close())
}

// dialWebSocket dials over HTTP/1.1, which WebSocket needs.
func dialWebSocket(ctx context.Context, t *testing.T, client *http.Client, url string) *websocket.Conn {
	t.Helper()
	h1 := *client
	transport, ok := client.Transport.(*http.Transport)
	if !ok {
		t.Fatalf("%T is no transport", client.Transport)
	}
	transport = transport.Clone()
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	h1.Transport, h1.Timeout = transport, 0
	t.Cleanup(transport.CloseIdleConnections)
	conn, _, err := websocket.Dial(ctx, url+"ws", &websocket.DialOptions{HTTPClient: &h1})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func talkWebSocket(ctx context.Context, conn *websocket.Conn) error {
	if err := conn.Write(ctx, websocket.MessageText, []byte("ping")); err != nil {
		return err
	}
	_, data, err := conn.Read(ctx)
	if err == nil && string(data) != "ping" {
		err = fmt.Errorf("got %q", data)
	}
	return err
}
