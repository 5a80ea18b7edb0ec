package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/desired"
	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// settle is how long an idle process is left alone before it is looked at.
const settle = 5 * time.Second

// measureBulk sends bytes through an ingress and through a bare node, in turns.
func measureBulk(ctx context.Context, c *chain, size sizes) (results, error) {
	var out results
	for _, streams := range []int{1, 8} {
		var ours, bare []float64
		for run := range size.runs + 1 { // the first is to warm up
			for _, side := range []struct {
				address string
				into    *[]float64
			}{{c.ingress.Status.Addresses[0], &ours}, {c.bare.address, &bare}} {
				figure, err := bulk(ctx, c.load, net.JoinHostPort(side.address, "5001"), streams, size.bulk)
				if err != nil {
					return nil, err
				}
				if run > 0 {
					*side.into = append(*side.into, figure)
				}
			}
		}
		out = append(out, rate(fmt.Sprintf("bulk TCP, %d streams", streams), "MB/s", ours, bare))
	}
	return out, nil
}

// bulk gives megabytes per second.
func bulk(ctx context.Context, load *testbed.Peer, target string, streams int, total int64) (float64, error) {
	begun := time.Now()
	var sending sync.WaitGroup
	errs := make([]error, streams)
	for i := range streams {
		sending.Go(func() { errs[i] = send(ctx, load, target, total/int64(streams)) })
	}
	sending.Wait()
	return float64(total) / 1e6 / time.Since(begun).Seconds(), errors.Join(errs...)
}

func send(ctx context.Context, load *testbed.Peer, target string, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := load.Dial(ctx, "tcp", target)
	if err != nil {
		return fmt.Errorf("dialling %s: %w", target, err)
	}
	defer conn.Close()
	buf := make([]byte, 256<<10)
	for n > 0 {
		k, err := conn.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		n -= int64(k)
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("%T has no half-close", conn)
	}
	if err := half.CloseWrite(); err != nil {
		return fmt.Errorf("ending: %w", err)
	}
	_, err = io.ReadFull(conn, buf[:1])
	return err
}

// connections of the load's HTTP clients.
const connections = 16

// measureRequests asks an ingress and a bare node for 1 KiB, in turns.
func measureRequests(ctx context.Context, c *chain, size sizes) (results, error) {
	var out results
	for _, http2 := range []bool{false, true} {
		ourClient, bareClient := c.client(c.ingress.Status.Addresses[0], http2), c.client(c.bare.address, http2)
		var ours, bare []float64
		for run := range size.runs + 1 {
			for _, side := range []struct {
				client *http.Client
				url    string
				into   *[]float64
			}{{ourClient, "https://shop.default.example.internal/", &ours}, {bareClient, "https://bare.example.internal/", &bare}} {
				figure, err := requests(ctx, side.client, side.url, size.requests)
				if err != nil {
					return nil, err
				}
				if run > 0 {
					*side.into = append(*side.into, figure)
				}
			}
		}
		ourClient.CloseIdleConnections()
		bareClient.CloseIdleConnections()
		name := "HTTP/1.1"
		if http2 {
			name = "HTTP/2"
		}
		out = append(out, rate("HTTPS requests, "+name, "req/s", ours, bare))
	}
	return out, nil
}

// client resolves every name to an address, and takes any certificate: both sides do the same work for it.
func (c *chain) client(address string, http2 bool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2, MaxIdleConnsPerHost: connections, DisableCompression: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.load.Dial(ctx, network, net.JoinHostPort(address, "443"))
		},
	}
	if !http2 {
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// requests gives requests per second.
func requests(ctx context.Context, client *http.Client, url string, during time.Duration) (float64, error) {
	var done atomic.Int64
	var asking sync.WaitGroup
	errs := make([]error, connections)
	begun := time.Now()
	for i := range connections {
		asking.Go(func() {
			for time.Since(begun) < during && errs[i] == nil {
				errs[i] = ask(ctx, client, url)
				done.Add(1)
			}
		})
	}
	asking.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds(), errors.Join(errs...)
}

func ask(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && (n != 1024 || answer.StatusCode != http.StatusOK) {
		err = fmt.Errorf("%s: %s with %d bytes", url, answer.Status, n)
	}
	return err
}

// measurePushes takes the time from a push to the first answer under the new name: on a node that is there, and on a new one
// beside a bare node that is started anew.
func measurePushes(ctx context.Context, c *chain, size sizes) (results, error) {
	var added, created, bare []float64
	client := c.client(c.ingress.Status.Addresses[0], true)
	defer client.CloseIdleConnections()
	var labels []string
	for run := range size.pushes {
		label := fmt.Sprintf("new%d", run)
		labels = append(labels, label)
		begun := time.Now()
		if _, err := c.push(ctx, c.shop(labels)); err != nil {
			return nil, err
		}
		if err := answers(ctx, client, "https://"+label+".default.example.internal/"); err != nil {
			return nil, err
		}
		added = append(added, time.Since(begun).Seconds())
		seconds, err := c.newIngress(ctx, label)
		if err != nil {
			return nil, err
		}
		created = append(created, seconds)
		begun = time.Now()
		fresh, err := startRole(ctx, c, "forward", label, 1)
		if err != nil {
			return nil, err
		}
		other := c.client(fresh.address, true)
		err = answers(ctx, other, "https://bare.example.internal/")
		bare = append(bare, time.Since(begun).Seconds())
		other.CloseIdleConnections()
		fresh.stop()
		if err != nil {
			return nil, err
		}
	}
	return results{cost("push of an expose to its first answer", "s", added, nil), cost("push of an ingress to its first answer", "s", created, bare)}, nil
}

func (c *chain) newIngress(ctx context.Context, name string) (float64, error) {
	in := &desired.Ingress{Name: name + "-node", Tailnet: "corp", AllowFrom: []string{"autogroup:member"}, Exposes: map[string]desired.Expose{
		"web": {Mode: ptr(desired.ModeHTTP), Backend: desired.Backend{Targets: []string{c.web}}},
	}}
	begun := time.Now()
	d, err := c.declare(ctx, in)
	if err != nil {
		return 0, err
	}
	client := c.client(d.Status.Addresses[0], true)
	defer client.CloseIdleConnections()
	err = answers(ctx, client, "https://"+name+"-node.default.example.internal/")
	took := time.Since(begun).Seconds()
	if deleteErr := c.agent.Client.Delete(ctx, in.Key()); deleteErr != nil {
		return 0, errors.Join(err, deleteErr)
	}
	_, goneErr := c.agent.Client.WaitGone(ctx, in.Key())
	return took, errors.Join(err, goneErr)
}

func answers(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testbed.Eventually(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return ask(attempt, client, url)
	})
}
