package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// use is what a process takes: megabytes of resident memory, open descriptors, goroutines.
type use struct{ memory, files, goroutines float64 }

// measureFootprint looks at the agent with n ingresses, each a node of its own, and at a process with n bare nodes.
func measureFootprint(ctx context.Context, c *chain, size sizes) (results, error) {
	// Anew, since what was measured before has left its marks.
	if err := c.agent.Stop(); err != nil {
		return nil, err
	}
	if err := c.agent.Start(ctx); err != nil {
		return nil, err
	}
	if _, err := c.agent.Client.WaitFor(ctx, c.ingress.Key, desired.Ready, 0); err != nil {
		return nil, err
	}
	var out results
	declared := 1 // the shop
	for _, n := range size.ingresses {
		for ; declared < n; declared++ {
			if _, err := c.declare(ctx, c.idle(fmt.Sprintf("app%d", declared)), nil); err != nil {
				return nil, err
			}
		}
		ours, err := c.agentUse(ctx)
		if err != nil {
			return nil, err
		}
		bare, err := c.bareUse(ctx, n)
		if err != nil {
			return nil, err
		}
		each := func(total float64) []float64 { return []float64{total / float64(n)} }
		out = append(out,
			cost(fmt.Sprintf("memory per ingress, of %d", n), "MB", each(ours.memory), each(bare.memory)),
			cost(fmt.Sprintf("goroutines per ingress, of %d", n), "", each(ours.goroutines), each(bare.goroutines)),
			cost(fmt.Sprintf("descriptors per ingress, of %d", n), "", each(ours.files), each(bare.files)))
	}
	return out, nil
}

func (c *chain) bareUse(ctx context.Context, n int) (use, error) {
	bare, err := startBare(ctx)
	if err != nil {
		return use{}, err
	}
	defer bare.stop()
	if err := bare.up(c, fmt.Sprintf("idle%d", n), n, settle); err != nil {
		return use{}, err
	}
	u, err := processUse(bare.cmd.Process.Pid)
	u.goroutines = float64(bare.Goroutines)
	return u, err
}

func (c *chain) agentUse(ctx context.Context) (use, error) {
	time.Sleep(settle)
	u, err := processUse(c.agent.Process().PID())
	if err != nil {
		return u, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(c.agent.Endpoint, "unix://"))
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://postern"+api.PathMetrics, nil)
	if err != nil {
		return u, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return u, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return u, fmt.Errorf("reading the agent's metrics: %w", err)
	}
	_, value, _ := strings.Cut(string(text), "\ngo_goroutines ")
	if _, err := fmt.Sscan(value, &u.goroutines); err != nil {
		return u, fmt.Errorf("reading the agent's go_goroutines: %w", err)
	}
	return u, nil
}

func processUse(pid int) (use, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return use{}, fmt.Errorf("reading a process: %w", err)
	}
	var size, resident float64 // in pages
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return use{}, fmt.Errorf("reading a process: %w", err)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return use{memory: resident * float64(os.Getpagesize()) / 1e6, files: float64(len(open))}, err
}
