package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU returns the processor time that a process has used, with that of its threads
// that have ended.
func processCPU(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED: counts nanoseconds
	var ts unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|scheduler, &ts); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// bytesWritten returns the number of bytes that a process has passed to write(2). If it
// writes no files, these are the bytes that it sent.
func bytesWritten(pid int) (n int64, err error) {
	return readProcNumber(fmt.Sprintf("/proc/%d/io", pid), "wchar:")
}

// residentBytes returns the resident memory of a process.
func residentBytes(pid int) (int64, error) {
	kib, err := readProcNumber(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return kib << 10, err
}

// readProcNumber returns the number after a label at the beginning of a line.
func readProcNumber(path, label string) (n int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), label); ok {
			_, err := fmt.Sscan(rest, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, label)
}

// childrenOf returns the process and its descendants.
func childrenOf(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pids[i])) // none if it has ended
		for _, task := range tasks {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pids[i], task.Name()))
			for _, field := range strings.Fields(string(b)) {
				var child int
				if _, err := fmt.Sscan(field, &child); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}
