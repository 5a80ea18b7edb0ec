package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Binaries are Postern's two programs.
type Binaries struct{ Agent, Provider string }

// Build builds the programs into dir, with the race detector where this process has it too.
func Build(ctx context.Context, dir string) (Binaries, error) {
	root, err := Root()
	if err != nil {
		return Binaries{}, err
	}
	b := Binaries{Agent: filepath.Join(dir, "postern"), Provider: filepath.Join(dir, "terraform-provider-postern")}
	for path, source := range map[string]string{b.Agent: "./agent", b.Provider: "./provider"} {
		args := []string{"build", "-o", path}
		if raceEnabled {
			args = append(args, "-race")
		}
		cmd := exec.CommandContext(ctx, "go", append(args, source)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return Binaries{}, fmt.Errorf("building %s: %w\n%s", source, err, out)
		}
	}
	return b, nil
}
