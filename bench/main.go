// Command bench measures Postern beside the same thing done without it, in one run, on loopback: a bare tsnet node that
// forwards. It prints a table and writes bench/out/results.json, or short.json with -short. Read the ratios, not the figures: machines differ.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// sizes says how much is measured.
type sizes struct {
	runs      int           // of each side, taken in turns
	bulk      int64         // bytes of a bulk run
	requests  time.Duration // of a run of requests
	pushes    int
	ingresses []int
	file      string // in bench/out
}

func main() {
	short := flag.Bool("short", false, "measure little, to see that it works")
	bare := flag.Bool("bare", false, "be the process with the bare nodes, as the bench runs it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	testbed.ApplyEnv()
	var err error
	if *bare {
		err = runBare(ctx)
	} else {
		size := sizes{runs: 5, bulk: 96 << 20, requests: 3 * time.Second, pushes: 5, ingresses: []int{1, 10, 50}, file: "results.json"}
		if *short {
			size = sizes{runs: 1, bulk: 16 << 20, requests: time.Second, pushes: 1, ingresses: []int{1, 3}, file: "short.json"}
		}
		err = bench(ctx, size)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// bench runs every measurement on one chain.
func bench(ctx context.Context, size sizes) error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	c, err := newChain(ctx, dir)
	defer c.close()
	if err != nil {
		return err
	}
	var all results
	for _, m := range []struct {
		what string
		do   func(context.Context, *chain, sizes) (results, error)
	}{
		{"bulk TCP over the tailnet", measureBulk},
		{"HTTPS requests over the tailnet", measureRequests},
		{"from push to served", measurePushes},
		{"memory, goroutines and descriptors", measureFootprint},
	} {
		fmt.Printf("==> %s\n", m.what)
		got, err := m.do(ctx, c, size)
		if err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		all = append(all, got...)
	}
	root, err := testbed.Root()
	if err != nil {
		return err
	}
	return all.write(os.Stdout, filepath.Join(root, "bench", "out", size.file))
}
