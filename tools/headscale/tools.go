//go:build tools

// Package headscale pins the Headscale server that tests and the demo run. It has a module of its own, so that what only
// a server needs never decides a version that Postern ships with.
package headscale

import _ "github.com/juanfont/headscale/cmd/headscale"
