package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// measureBulk sends bytes through an ingress and through a bare node, in turns.
func measureBulk(ctx context.Context, c *chain, size sizes) (results, error) {
	var out results
	for _, load := range []struct {
		name    string
		streams int
	}{{"bulk TCP, one stream", 1}, {"bulk TCP, eight streams", 8}} {
		figures, err := c.inTurns(size.runs, func(s side) (func() (float64, error), func()) {
			return func() (float64, error) { return bulk(ctx, c.load, s.address, load.streams, size.bulk) }, func() {}
		})
		if err != nil {
			return nil, err
		}
		out = append(out, rate(load.name, "MB/s", figures[0], figures[1]))
	}
	return out, c.samePath(ctx)
}

// samePath fails where one side is reached directly and the other by the relay: nothing measured compares then.
func (c *chain) samePath(ctx context.Context) error {
	ours, err := c.load.path(ctx, c.ours().address)
	if err != nil {
		return err
	}
	bare, err := c.load.path(ctx, c.bare.Address)
	if err == nil && ours != bare {
		err = fmt.Errorf("the path to the ingress is %s, and to the bare node %s; run again", ours, bare)
	}
	return err
}

// bulk gives megabytes per second.
func bulk(ctx context.Context, load *load, address string, streams int, total int64) (float64, error) {
	begun := time.Now()
	var sending sync.WaitGroup
	errs := make([]error, streams)
	for i := range streams {
		sending.Go(func() { errs[i] = send(ctx, load, address, total/int64(streams)) })
	}
	sending.Wait()
	return float64(total) / 1e6 / time.Since(begun).Seconds(), errors.Join(errs...)
}

func send(ctx context.Context, load *load, address string, n int64) error {
	conn, err := load.dial(ctx, address, bulkPort)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("setting a deadline: %w", err)
	}
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
	if _, err = io.ReadFull(conn, buf[:1]); err != nil {
		return fmt.Errorf("waiting for the sink: %w", err)
	}
	return nil
}

// connections of the load's HTTP clients, each with one request at a time.
const connections = 16

// measureRequests asks an ingress and a bare node for 1 KiB, in turns.
func measureRequests(ctx context.Context, c *chain, size sizes) (results, error) {
	var out results
	for _, protocol := range []struct {
		name    string
		version int
	}{{"HTTP/1.1", 1}, {"HTTP/2", 2}} {
		figures, err := c.inTurns(size.runs, func(s side) (func() (float64, error), func()) {
			var clients []*http.Client
			for range connections {
				clients = append(clients, c.load.client(s, protocol.version))
			}
			run := func() (float64, error) { return requests(ctx, clients, s.url(), protocol.version, size.requests) }
			return run, func() {
				for _, client := range clients {
					client.CloseIdleConnections()
				}
			}
		})
		if err != nil {
			return nil, err
		}
		out = append(out, rate("HTTPS requests, "+protocol.name, "req/s", figures[0], figures[1]))
	}
	return out, nil
}

// inTurns measures ours and the bare one alternately, after a run of each to warm up.
func (c *chain) inTurns(runs int, prepare func(side) (run func() (float64, error), end func())) (figures [2][]float64, err error) {
	var measure [2]func() (float64, error)
	for i, s := range []side{c.ours(), c.bare.side()} {
		run, end := prepare(s)
		measure[i] = run
		defer end()
	}
	for turn := range runs + 1 {
		for i, run := range measure {
			figure, err := run()
			if err != nil {
				return figures, err
			}
			if turn > 0 {
				figures[i] = append(figures[i], figure)
			}
		}
	}
	return figures, nil
}

// requests gives requests per second.
func requests(ctx context.Context, clients []*http.Client, url string, version int, during time.Duration) (float64, error) {
	var done atomic.Int64
	var asking sync.WaitGroup
	errs := make([]error, len(clients))
	begun := time.Now()
	for i, client := range clients {
		asking.Go(func() {
			for time.Since(begun) < during && errs[i] == nil {
				errs[i] = ask(ctx, client, url, version)
				done.Add(1)
			}
		})
	}
	asking.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds(), errors.Join(errs...)
}
