package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

// measureFootprint looks at the agent with n ingresses, each a node of its own, and at a process with n bare nodes.
func measureFootprint(ctx context.Context, c *chain, size sizes) (results, error) {
	var out results
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
	declared := 1 // the shop
	for _, n := range size.ingresses {
		for ; declared < n; declared++ {
			if _, err := c.declare(ctx, c.idle(fmt.Sprintf("app%d", declared)), nil); err != nil {
				return nil, err
			}
		}
		time.Sleep(settle)
		pid := c.agent.Process().PID()
		memory, files, err := processUse(pid)
		if err != nil {
			return nil, err
		}
		goroutines, err := c.agentGoroutines(ctx)
		if err != nil {
			return nil, err
		}
		bare, err := startRole(ctx, c, "idle", fmt.Sprintf("idle%d", n), n)
		if err != nil {
			return nil, err
		}
		if err := bare.up(); err != nil {
			bare.stop()
			return nil, err
		}
		bareMemory, bareFiles, err := processUse(bare.cmd.Process.Pid)
		bare.stop()
		if err != nil {
			return nil, err
		}
		each := func(total float64) []float64 { return []float64{total / float64(n)} }
		out = append(out,
			cost(fmt.Sprintf("memory per ingress, of %d", n), "MB", each(memory), each(bareMemory)),
			cost(fmt.Sprintf("goroutines per ingress, of %d", n), "", each(goroutines), each(float64(bare.goroutines))),
			cost(fmt.Sprintf("descriptors per ingress, of %d", n), "", each(files), each(bareFiles)))
	}
	return out, nil
}

// processUse gives a process's resident memory in megabytes and its open descriptors.
func processUse(pid int) (memory, files float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading a process: %w", err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				return 0, 0, fmt.Errorf("reading a process: %w", err)
			}
			memory = kilobytes / 1000
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading a process: %w", err)
	}
	return memory, float64(len(open)), nil
}

func (c *chain) agentGoroutines(ctx context.Context) (float64, error) {
	socket := strings.TrimPrefix(c.agent.Endpoint, "unix://")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://postern"+api.PathMetrics, nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("reading the agent's metrics: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, fmt.Errorf("reading the agent's metrics: %w", err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the agent's metrics have no go_goroutines")
}
