// Command terraform-provider-postern is the Terraform provider of Postern.
package main

import (
	"context"
	"flag"
	"log"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	postern "github.com/posterndev/terraform-provider-postern/provider/internal/provider"
)

// address is where Terraform finds the provider.
const address = "registry.terraform.io/posterndev/postern"

// version is set when a release is linked: -X main.version=1.2.3.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "wait for a debugger, and print how Terraform attaches to this process")
	flag.Parse()
	err := providerserver.Serve(context.Background(), func() provider.Provider { return postern.New(version, os.Getenv) },
		providerserver.ServeOpts{Address: address, Debug: *debug, ProtocolVersion: 6})
	if err != nil {
		log.Fatal(err)
	}
}
