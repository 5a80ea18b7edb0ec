//go:build !linux

package testbed

import "syscall"

// dieWithParent is Linux's alone; elsewhere children are stopped by who started them.
func dieWithParent() *syscall.SysProcAttr { return nil }
