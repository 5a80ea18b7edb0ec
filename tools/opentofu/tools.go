//go:build tools

// Package opentofu pins the OpenTofu that tests and the demo run where no terraform is on the PATH.
package opentofu

import _ "github.com/opentofu/opentofu/cmd/tofu"
