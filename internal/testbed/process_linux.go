package testbed

import "syscall"

// dieWithParent has the kernel end a child whose parent is gone, however that came.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
