package nice

import (
	"os"
	"strconv"
	"syscall"
)

const niceness = 10

// Lower has the process run on what processors others leave idle. It is to be called
// early in a TestMain: threads that are there, and their children, have the priority. Where
// it can't be had nothing happens.
func Lower() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
		}
	}
}
