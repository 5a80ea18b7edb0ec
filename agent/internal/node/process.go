package node

import (
	"errors"
	"os"
	"runtime/debug"

	"tailscale.com/envknob"
)

// PrepareProcess makes this process fit for nodes. It must come before the first. Credentials in the environment would be
// taken by every node of the process, and a node sends its logs to log.tailscale.com whatever its control plane is.
func PrepareProcess() error {
	var errs []error
	for _, name := range []string{
		"TS_AUTHKEY", "TS_AUTH_KEY", "TS_CLIENT_SECRET", "TS_CLIENT_ID", "TS_ID_TOKEN", "TS_AUDIENCE", "TS_CONTROL_URL",
	} {
		errs = append(errs, os.Unsetenv(name))
	}
	envknob.SetNoLogsNoSupport()
	return errors.Join(errs...)
}

const (
	// nodeMemory is what an idle node counts for in Go's heap: buffers that it hardly ever touches. A limit below their sum
	// has the collector run all the time (A9).
	nodeMemory = 40 << 20
	baseMemory = 256 << 20
)

// MemoryLimit is the memory limit for a process with this many nodes, in bytes.
func MemoryLimit(nodes int) int64 { return int64(nodes)*nodeMemory + baseMemory }

// ApplyMemoryLimit sets the limit, unless whoever runs the process has set one in GOMEMLIMIT.
func ApplyMemoryLimit(nodes int) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(MemoryLimit(nodes))
	}
}
