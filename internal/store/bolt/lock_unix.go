//go:build unix && !solaris && !illumos && !aix

package bolt

import (
	"errors"
	"os"
	"syscall"
	"time"

	berrors "go.etcd.io/bbolt/errors"
)

// lock takes the lock that bbolt takes on these systems, before the file is
// read: a file that another process writes to would look damaged. The lock
// belongs to the open file, so bbolt finds it taken by itself.
func lock(file *os.File, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case !time.Now().Before(deadline):
			return berrors.ErrTimeout
		}
		<-retry.C
	}
}
