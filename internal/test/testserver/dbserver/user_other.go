//go:build !linux

package dbserver

import "syscall"

func asOtherUser() *syscall.SysProcAttr { return nil }
