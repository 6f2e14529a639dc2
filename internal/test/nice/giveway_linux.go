package nice

import (
	"os"
	"strconv"
	"syscall"
)

const niceness = 10

// Lower lowers the CPU priority of the process, like the command nice. Call it early in
// TestMain: it affects the existing threads and those that they start. If it fails, or the
// priority is lower already, the priority stays unchanged.
func Lower() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil && nicenessOf(id) < niceness {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
		}
	}
}

// nicenessOf returns the niceness of a thread: 0 by default, and 19 at the lowest priority.
func nicenessOf(thread int) int {
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, thread)
	if err != nil {
		return 0
	}
	return 20 - raw // the system call has no negative results
}
