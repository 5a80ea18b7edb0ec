package testbed

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/api"
)

// Agent is a running `postern run`.
type Agent struct {
	// Endpoint is its Unix socket, as clients take it.
	Endpoint string
	// Client talks to it, for workspace "test".
	Client *api.Client
	// Dir holds its state, its configuration and its log.
	Dir string

	binary  string
	process *Process
}

// StartAgent runs an agent with its state in dir, which must be short: its socket lies in it. More lines of configuration
// may be given.
func StartAgent(ctx context.Context, binary, dir string, more ...string) (*Agent, error) {
	socket := filepath.Join(dir, "postern.sock")
	a := &Agent{Endpoint: "unix://" + socket, Dir: dir, binary: binary}
	lines := append([]string{"state_dir: " + filepath.Join(dir, "state"), "socket: " + socket, "drain: 3s"}, more...)
	if !slices.ContainsFunc(more, func(line string) bool { return strings.HasPrefix(line, "log_level:") }) {
		lines = append(lines, "log_level: debug")
	}
	config := strings.Join(lines, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "postern.yaml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	var err error
	if a.Client, err = api.NewClient(api.Options{Endpoint: a.Endpoint, Workspace: "test"}); err != nil {
		return nil, err
	}
	return a, a.Start(ctx)
}

// Start runs the agent again, with what it kept.
func (a *Agent) Start(ctx context.Context) error {
	env := append(Env(), "PATH="+os.Getenv("PATH"), "HOME="+a.Dir)
	process, err := startProcess("postern", filepath.Join(a.Dir, "postern.log"), env, a.binary, "run", "--config", filepath.Join(a.Dir, "postern.yaml"))
	if err != nil {
		return err
	}
	a.process = process
	return process.await(ctx, func() error {
		_, err := a.Client.Info(ctx)
		return err
	})
}

// Process is the agent's process.
func (a *Agent) Process() *Process { return a.process }

// Kill ends the agent at once, as a power cut would.
func (a *Agent) Kill() error { return a.process.Kill() }

// Stop ends the agent as its operator would.
func (a *Agent) Stop() error { return a.process.Stop() }

// Tail is the end of the agent's log.
func (a *Agent) Tail() string { return a.process.Tail() }
