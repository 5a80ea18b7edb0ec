package testbed

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Backend is a service to be published, on loopback.
type Backend struct {
	// Address is host:port.
	Address string

	close func()
}

// Close stops the service.
func (b *Backend) Close() { b.close() }

// Seen is what a backend saw of a request; it answers with it.
type Seen struct {
	Backend string      `json:"backend"`
	Method  string      `json:"method"`
	Host    string      `json:"host"`
	Path    string      `json:"path"`
	Proto   string      `json:"proto"`
	Header  http.Header `json:"header"`
}

// StartHTTP serves requests by telling what it saw. /ws echoes over WebSocket, /stream sends a line a tick until its
// client leaves, and /hold answers when its client has sent its whole body.
func StartHTTP(name string) (*Backend, error) { return StartHTTPAt(name, "127.0.0.1:0") }

// StartHTTPAt is StartHTTP at a given address.
func StartHTTPAt(name, address string) (*Backend, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("starting backend %s: %w", name, err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Seen{ // the client has gone, or it reads
			Backend: name, Method: r.Method, Host: r.Host, Path: r.URL.RequestURI(), Proto: r.Proto, Header: r.Header,
		})
	})
	routes.HandleFunc("/ws", echoWebSocket)
	routes.HandleFunc("/stream", stream)
	routes.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v\n", n, err)
	})
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends by Close
	}()
	return &Backend{Address: listener.Addr().String(), close: func() {
		_ = server.Close() // it only closes
		<-done
	}}, nil
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }() // it may be closed already
	for {
		kind, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if err := conn.Write(r.Context(), kind, data); err != nil {
			return
		}
	}
}

func stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	control := http.NewResponseController(w)
	for n := 0; ; n++ {
		if _, err := fmt.Fprintf(w, "data: %d\n\n", n); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// StartEcho serves TCP connections by sending back what comes, and its end when the client ends its half.
func StartEcho() (*Backend, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting an echo: %w", err)
	}
	var mu sync.Mutex
	conns := map[net.Conn]bool{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[conn] = true
			mu.Unlock()
			serving.Go(func() {
				_, _ = io.Copy(conn, conn) // either side may leave
				_ = conn.Close()
				mu.Lock()
				delete(conns, conn)
				mu.Unlock()
			})
		}
	})
	return &Backend{Address: listener.Addr().String(), close: func() {
		_ = listener.Close() // it only closes
		mu.Lock()
		for conn := range conns {
			_ = conn.Close() // it only closes
		}
		mu.Unlock()
		serving.Wait()
	}}, nil
}

// StartUDPEcho serves datagrams by sending them back.
func StartUDPEcho() (*Backend, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a UDP echo: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buf[:n], from) // datagrams may be lost
		}
	}()
	return &Backend{Address: conn.LocalAddr().String(), close: func() {
		_ = conn.Close() // it only closes
		<-done
	}}, nil
}
