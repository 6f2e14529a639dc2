package handler

import "syscall"

func killWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// awaitExit waits until the process pid has exited, and leaves it to be waited for, so that its
// ID stays taken. It returns false if the system does not support that.
func awaitExit(pid int) bool {
	const onePID = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, onePID, uintptr(pid), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return errno == 0
		}
	}
}
