// Command docs writes the provider's reference into docs/: from the schema that the built provider shows to Terraform, the
// examples, and the templates. It asks no registry.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "docs: %v\n", err)
		os.Exit(1)
	}
}

// generated is where the generator looks for a provider that is given by its schema.
const generated = "registry.terraform.io/hashicorp/postern"

func run(ctx context.Context) error {
	root, err := testbed.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "postern-docs-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	schema, err := providerSchema(ctx, filepath.Join(root, "bin", "terraform-provider-postern"), dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "schema.json")
	if err := os.WriteFile(file, schema, 0o600); err != nil {
		return fmt.Errorf("writing the schema: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, ".cache", "bin", "tfplugindocs"), "generate",
		"--provider-dir", root, "--provider-name", "postern", "--rendered-provider-name", "Postern", "--providers-schema", file)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("generating the reference: %w", err)
	}
	return nil
}

// providerSchema has Terraform ask a provider for its schema, with dir for its work.
func providerSchema(ctx context.Context, provider, dir string) ([]byte, error) {
	cli, err := testbed.FindTerraform()
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	const configuration = "terraform {\n  required_providers {\n    postern = { source = \"posterndev/postern\" }\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(work, "main.tf"), []byte(configuration), 0o600); err != nil {
		return nil, fmt.Errorf("writing a configuration: %w", err)
	}
	terraform, err := testbed.NewTerraform(cli, provider, work, filepath.Join(dir, "mirror"))
	if err != nil {
		return nil, err
	}
	if err := terraform.Init(ctx); err != nil {
		return nil, err
	}
	text, err := terraform.Run(ctx, "providers", "schema", "-json")
	if err != nil {
		return nil, err
	}
	var shown struct {
		FormatVersion   string                     `json:"format_version"`
		ProviderSchemas map[string]json.RawMessage `json:"provider_schemas"`
	}
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		return nil, fmt.Errorf("decoding the schema: %w", err)
	}
	for name, schema := range shown.ProviderSchemas {
		if strings.HasSuffix(name, "/posterndev/postern") {
			shown.ProviderSchemas = map[string]json.RawMessage{generated: schema}
			return json.Marshal(shown)
		}
	}
	return nil, fmt.Errorf("the schema of the provider is not among %d that Terraform shows", len(shown.ProviderSchemas))
}
