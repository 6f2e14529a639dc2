package cost

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// clockThread is CLOCK_THREAD_CPUTIME_ID. Getrusage counts in ticks of milliseconds on some kernels.
const clockThread = 3

func threadTime() time.Duration {
	var at syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThread, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		panic(os.NewSyscallError("clock_gettime", errno))
	}
	return time.Duration(at.Nano())
}
