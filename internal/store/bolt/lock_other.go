//go:build !unix || solaris || illumos || aix

package bolt

import (
	"os"
	"time"
)

// lock leaves it to bbolt, whose lock on these systems has another form. A file
// in use may then be reported as damaged instead of locked; it is not changed
// either way.
func lock(*os.File, time.Duration) error { return nil }
