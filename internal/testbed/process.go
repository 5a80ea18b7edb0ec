package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a child whose output goes to a file. It is stopped by its process id.
type Process struct {
	Name string
	Log  string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read it after done
}

// startProcess starts a program with an environment of its own, appending its output to a log file.
func startProcess(name, logFile string, env []string, program string, args ...string) (*Process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer out.Close()
	p := &Process{Name: name, Log: logFile, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, env
	p.cmd.SysProcAttr = dieWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the child is gone.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Kill ends the child at once, as a power cut would.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL, 10*time.Second) }

// Stop asks the child to end, and ends it when it does not in time.
func (p *Process) Stop() error {
	if err := p.end(syscall.SIGTERM, 20*time.Second); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

func (p *Process) end(signal syscall.Signal, limit time.Duration) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling %s: %w", p.Name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s is still there %s after %s", p.Name, limit, signal)
	}
}

// Tail is the end of the child's log, for the message of a failure.
func (p *Process) Tail() string {
	const lines = 30
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// await waits until the child answers, and fails early when it ends.
func (p *Process) await(ctx context.Context, answers func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := Eventually(ctx, answers); err != nil {
		return fmt.Errorf("%s does not come up: %w\n%s", p.Name, err, p.Tail())
	}
	return nil
}
