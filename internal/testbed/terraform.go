package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ProviderVersion is the version under which the provider is offered to Terraform.
const ProviderVersion = "0.1.0"

// FindTerraform finds the CLI: what POSTERN_TERRAFORM names, terraform or tofu on the PATH, or the OpenTofu that the
// Makefile builds.
func FindTerraform() (string, error) {
	if path := os.Getenv("POSTERN_TERRAFORM"); path != "" {
		return path, nil
	}
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return tool("POSTERN_TERRAFORM", "tofu", "tofu")
}

// Terraform is a folder with a configuration, and the CLI to work on it.
type Terraform struct {
	// Dir is where the configuration lies.
	Dir string
	// Env is added to the CLI's environment.
	Env []string
	// Echo gets what the CLI prints, besides the one who calls; may be nil.
	Echo io.Writer

	binary string
	config string
}

// NewTerraform makes a folder ready in which the provider is found without any registry.
func NewTerraform(binary, provider, dir, mirror string) (*Terraform, error) {
	t := &Terraform{Dir: dir, binary: binary, config: filepath.Join(mirror, "cli.tfrc")}
	name := "terraform-provider-postern_v" + ProviderVersion
	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		folder := filepath.Join(mirror, host, "posterndev", "postern", ProviderVersion, runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("laying out the provider: %w", err)
		}
		if err := os.Symlink(provider, filepath.Join(folder, name)); err != nil && !os.IsExist(err) {
			return nil, fmt.Errorf("laying out the provider: %w", err)
		}
	}
	text := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(t.config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing the CLI's configuration: %w", err)
	}
	return t, nil
}

// Run runs the CLI and gives what it printed, on both outputs together.
func (t *Terraform) Run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, t.binary, args...)
	cmd.Dir = t.Dir
	cmd.Env = append(append(Env(), "PATH="+os.Getenv("PATH"), "HOME="+t.Dir, "TMPDIR="+os.TempDir(),
		"TF_CLI_CONFIG_FILE="+t.config, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1"), t.Env...)
	cmd.SysProcAttr = dieWithParent()
	cmd.Stdout = &out
	if t.Echo != nil {
		cmd.Stdout = io.MultiWriter(&out, t.Echo)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", filepath.Base(t.binary), strings.Join(args, " "), err, out.String())
	}
	return out.String(), nil
}

// Init makes the folder ready.
func (t *Terraform) Init(ctx context.Context) error {
	_, err := t.Run(ctx, "init", "-no-color", "-input=false")
	return err
}

// Apply applies the configuration, with a variable for each name=value.
func (t *Terraform) Apply(ctx context.Context, vars ...string) (string, error) {
	return t.Run(ctx, append([]string{"apply", "-no-color", "-input=false", "-auto-approve"}, variables(vars)...)...)
}

// Destroy destroys what the configuration made.
func (t *Terraform) Destroy(ctx context.Context, vars ...string) (string, error) {
	return t.Run(ctx, append([]string{"destroy", "-no-color", "-input=false", "-auto-approve"}, variables(vars)...)...)
}

// Plan plans, and gives the plan's JSON.
func (t *Terraform) Plan(ctx context.Context, vars ...string) (text string, plan map[string]any, err error) {
	file := filepath.Join(t.Dir, "plan.out")
	if text, err = t.Run(ctx, append([]string{"plan", "-no-color", "-input=false", "-out=" + file}, variables(vars)...)...); err != nil {
		return text, nil, err
	}
	shown, err := t.Run(ctx, "show", "-json", file)
	if err != nil {
		return text, nil, err
	}
	return text, plan, json.Unmarshal([]byte(shown), &plan)
}

func variables(pairs []string) []string {
	args := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		args = append(args, "-var="+pair)
	}
	return args
}
