// Command demo shows the whole chain on this machine, on loopback alone: a real Headscale, the agent, two backends,
// terraform apply, and a peer on the tailnet that reaches the services by name. It cleans up after itself, on failure and
// on interrupt too.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// demo is what the steps share.
type demo struct {
	out       io.Writer
	dir       string
	started   time.Time
	headscale *testbed.Headscale
	agent     *testbed.Agent
	terraform *testbed.Terraform
	peer      *testbed.Peer
	backends  map[string]*testbed.Backend
	cleanups  []func() error
}

// run does the steps in order, and undoes what they did whatever happens.
func run(ctx context.Context, out io.Writer) (err error) {
	testbed.ApplyEnv()
	dir, err := os.MkdirTemp("", "postern-demo-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	d := &demo{out: out, dir: dir, started: time.Now(), backends: map[string]*testbed.Backend{}}
	d.cleanups = append(d.cleanups, func() error { return os.RemoveAll(dir) })
	defer func() { err = errors.Join(err, d.cleanup(err)) }()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"Starting Headscale, two web backends, and a TCP service, all on loopback", d.startServices},
		{"Starting the agent: postern run", d.startAgent},
		{"Planning: the names are in the first plan, before anything exists", d.plan},
		{"Applying: it returns when the service is ready", d.apply},
		{"Joining the tailnet as a peer, and reaching everything by name", d.reach},
		{"Killing the agent with -9, and starting it again: the address stays", d.restart},
		{"Destroying: the device leaves Headscale, the policy is as it was", d.destroy},
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.say("\n=== %s  [%.0fs]", step.what, time.Since(d.started).Seconds())
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	d.say("\nThat is Postern. It took %.0f s. README.md says how to go on.", time.Since(d.started).Seconds())
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// cleanup undoes in reverse, and after a failure shows the end of the agent's log first.
func (d *demo) cleanup(failure error) error {
	if failure != nil && d.agent != nil {
		d.say("\nthe end of the agent's log:\n%s", d.agent.Tail())
	}
	d.say("\n=== Cleaning up")
	var errs []error
	for i := len(d.cleanups) - 1; i >= 0; i-- {
		errs = append(errs, d.cleanups[i]())
	}
	return errors.Join(errs...)
}

func (d *demo) startServices(ctx context.Context) error {
	folder := filepath.Join(d.dir, "hs")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	var err error
	if d.headscale, err = testbed.StartHeadscale(ctx, testbed.HeadscaleOptions{Dir: folder}); err != nil {
		return err
	}
	d.cleanups = append(d.cleanups, d.headscale.Stop)
	if err := d.headscale.SetPolicy(ctx, adminPolicy); err != nil {
		return err
	}
	for _, name := range []string{"shop", "shop-admin"} {
		if d.backends[name], err = testbed.StartHTTP(name); err != nil {
			return err
		}
	}
	if d.backends["postgres"], err = testbed.StartEcho(); err != nil {
		return err
	}
	for _, b := range d.backends {
		d.cleanups = append(d.cleanups, func() error { b.Close(); return nil })
	}
	d.say("Headscale at %s, with a policy that an admin wrote:\n%s", d.headscale.URL, adminPolicy)
	return nil
}

// binaries are what `make build` built.
func binaries() (agent, provider string, err error) {
	root, err := testbed.Root()
	if err != nil {
		return "", "", err
	}
	agent, provider = filepath.Join(root, "bin", "postern"), filepath.Join(root, "bin", "terraform-provider-postern")
	for _, path := range []string{agent, provider} {
		if _, err := os.Stat(path); err != nil {
			return "", "", fmt.Errorf("finding %s: %w; run `make build`", path, err)
		}
	}
	return agent, provider, nil
}

func (d *demo) startAgent(ctx context.Context) error {
	agent, _, err := binaries()
	if err != nil {
		return err
	}
	folder := filepath.Join(d.dir, "agent")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	d.agent, err = testbed.StartAgent(ctx, agent, folder)
	if d.agent != nil && d.agent.Process() != nil {
		d.cleanups = append(d.cleanups, func() error { return d.agent.Stop() })
	}
	if err != nil {
		return err
	}
	d.say("The agent answers at %s", d.agent.Endpoint)
	return nil
}
