package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

// built are the programs under test, built once, with the race detector where the tests have it.
var built testbed.Binaries

// cli is Terraform or OpenTofu.
var cli string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	testbed.ApplyEnv()
	dir, err := os.MkdirTemp("", "postern-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if built, err = testbed.Build(ctx, dir); err == nil {
		cli, err = testbed.FindTerraform()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// shortDir makes a folder whose path leaves room for a socket.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}
