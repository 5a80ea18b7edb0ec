package provider

import (
	"os"
	"os/exec"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/posterndev/terraform-provider-postern/internal/server/servertest"
)

// TestMain has tests that run the real Terraform do so in a plain `go test`, without asking anything of the network.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"TF_ACC": "1", "CHECKPOINT_DISABLE": "1"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	if os.Getenv("TF_ACC_TERRAFORM_PATH") == "" {
		for _, program := range []string{"terraform", "tofu"} {
			if found, err := exec.LookPath(program); err == nil {
				_ = os.Setenv("TF_ACC_TERRAFORM_PATH", found) // it fails on an invalid name only
				if program == "tofu" {
					_ = os.Setenv("TF_ACC_PROVIDER_HOST", "registry.opentofu.org")
				}
				break
			}
		}
	}
	os.Exit(m.Run())
}

// needTerraform fails a test for want of a program that tests cannot do without.
func needTerraform(t *testing.T) {
	t.Helper()
	if os.Getenv("TF_ACC_TERRAFORM_PATH") == "" {
		t.Fatal("neither terraform nor tofu is on PATH: install Terraform 1.11 or OpenTofu 1.11, or later")
	}
}

// environment is what the provider reads of the environment in a test.
func environment(endpoint, workspace string) func(string) string {
	return func(name string) string {
		return map[string]string{"POSTERN_ENDPOINT": endpoint, "POSTERN_WORKSPACE": workspace}[name]
	}
}

// factories serve the provider in this process, for an agent and the workspace of its client.
func factories(s *servertest.Server) map[string]func() (tfprotov6.ProviderServer, error) {
	return factoriesFor(s.Endpoint, "test")
}

func factoriesFor(endpoint, workspace string) map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		TypeName: func() (tfprotov6.ProviderServer, error) {
			return providerserver.NewProtocol6(New("test", environment(endpoint, workspace)))(), nil
		},
	}
}
