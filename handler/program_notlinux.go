//go:build unix && !linux

package handler

import "syscall"

func killWithParent(*syscall.SysProcAttr) {}

func awaitExit(int) bool { return false }
