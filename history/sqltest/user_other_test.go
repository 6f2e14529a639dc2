//go:build !linux

package sqltest

import "syscall"

func asOtherUser() *syscall.SysProcAttr { return nil }
