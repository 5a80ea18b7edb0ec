// Command postern is the agent that publishes services on a tailnet, and the command line that talks to it.
package main

import (
	"fmt"
	"os"

	"github.com/posterndev/terraform-provider-postern/agent/internal/cli"
	"github.com/posterndev/terraform-provider-postern/agent/internal/node"
)

// version is set by the linker.
var version = "dev"

func main() {
	if err := node.PrepareProcess(); err != nil {
		fmt.Fprintf(os.Stderr, "postern: preparing the process: %v\n", err)
		os.Exit(1)
	}
	os.Exit(cli.Main(version, os.Args[1:], os.Stdout, os.Stderr))
}
