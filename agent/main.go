// Command postern is the agent that publishes services on a tailnet, and the command line that talks to it.
package main

import (
	"os"

	"github.com/posterndev/terraform-provider-postern/agent/internal/cli"
	"github.com/posterndev/terraform-provider-postern/agent/internal/node"
)

// version is set by the linker.
var version = "dev"

func main() {
	node.PrepareProcess()
	os.Exit(cli.Main(version, os.Args[1:], os.Stdout, os.Stderr))
}
