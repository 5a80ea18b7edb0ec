package node

import (
	"errors"
	"os"
	"runtime/debug"

	"tailscale.com/envknob"
)

// keepaliveIdle is after how long an idle connection from the tailnet is asked whether its peer is still there. tsnet's own
// default is two hours, in which a peer that went away holds a connection to a backend.
const keepaliveIdle = "60s"

// PrepareProcess makes this process fit for nodes. It must come before the first. Credentials in the environment would be
// taken by every node of the process, and a node sends its logs to log.tailscale.com whatever its control plane is.
func PrepareProcess() error {
	var errs []error
	for _, name := range []string{
		"TS_AUTHKEY", "TS_AUTH_KEY", "TS_CLIENT_SECRET", "TS_CLIENT_ID", "TS_ID_TOKEN", "TS_AUDIENCE", "TS_CONTROL_URL",
		"TSNET_FORCE_LOGIN", // has an enrolled node log in again
	} {
		errs = append(errs, os.Unsetenv(name))
	}
	envknob.SetNoLogsNoSupport()
	if os.Getenv("TS_NETSTACK_KEEPALIVE_IDLE") == "" {
		envknob.Setenv("TS_NETSTACK_KEEPALIVE_IDLE", keepaliveIdle)
	}
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
