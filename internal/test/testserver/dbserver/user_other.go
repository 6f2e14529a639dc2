//go:build !linux

package dbserver

import "syscall"

func AsOtherUser() *syscall.SysProcAttr { return nil }
