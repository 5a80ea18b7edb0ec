//go:build tools

// Package docs pins the generator of the reference in docs/.
package docs

import _ "github.com/hashicorp/terraform-plugin-docs/cmd/tfplugindocs"
