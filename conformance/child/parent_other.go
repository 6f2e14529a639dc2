//go:build unix && !linux

package child

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}

func awaitStopped(*Process) error { return nil }

func descendants(int) []int { return nil }
