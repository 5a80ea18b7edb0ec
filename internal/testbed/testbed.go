// Package testbed runs the real things that Postern works with, on loopback: a Headscale server, peers on its tailnet,
// backends, the agent, and the Terraform CLI. Tests, the demo and the benchmarks share it. Nothing that it starts talks to
// any other machine, and everything that it starts is stopped by who started it; children die with their parent.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tailscale.com/envknob"
)

// Env is the environment of every process with a tailnet node in it: no log upload, no port mapper, no public control
// plane, and relaying over plain HTTP, which is what a Headscale without a certificate serves.
func Env() []string {
	return []string{
		"TS_NO_LOGS_NO_SUPPORT=1", "TS_DISABLE_PORTMAPPER=1", "TS_PANIC_IF_HIT_MAIN_CONTROL=1", "TS_DEBUG_USE_DERP_HTTP=1",
	}
}

// ApplyEnv sets Env in this process, also where the tailnet's code has read its environment already, which it does when the
// program starts. It must come before the first node starts.
func ApplyEnv() {
	for _, pair := range Env() {
		name, value, _ := strings.Cut(pair, "=")
		envknob.Setenv(name, value)
	}
}

// Root is the folder of this module: the one with go.mod above the working folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module's folder: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the module's folder: there is no go.mod above the working folder")
		}
		dir = parent
	}
}

// tool finds a program that the Makefile builds.
func tool(env, name, target string) (string, error) {
	if path := os.Getenv(env); path != "" {
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".cache", "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("finding %s: %w; build it with `make %s`, or name it in %s", name, err, target, env)
	}
	return path, nil
}

// pollEvery is how often a condition outside is looked at.
const pollEvery = 20 * time.Millisecond

// Eventually looks at a condition until it holds, and gives its last error when ctx ends first.
func Eventually(ctx context.Context, condition func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting: %w; last seen: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// freePorts gives n loopback ports that were free a moment ago.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close()
		address, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("finding a free port: %v is no TCP address", l.Addr())
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}
