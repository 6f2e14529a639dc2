package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// awaitStopped waits until every thread is stopped, since they stop one after the other, and then stops the descendants:
// those that have left the process group did not receive the signal.
func awaitStopped(p *Process) error {
	if err := awaitThreadsStopped(p, p.Pid()); err != nil {
		return err
	}
	for _, d := range descendants(p.Pid()) {
		if syscall.Kill(d, syscall.SIGSTOP) == nil {
			if err := awaitThreadsStopped(p, d); err != nil {
				return err
			}
		}
	}
	return nil
}

func awaitThreadsStopped(p *Process, pid int) error {
	for {
		stopped, err := allStopped(pid)
		if err != nil || stopped {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-p.done:
			return fmt.Errorf("pause process %d: it has ended", p.Pid())
		}
	}
}

// descendants returns the processes that a process has started, and those that they have.
func descendants(pid int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // its only error is that of a malformed pattern
	children := map[int][]int{}
	for _, path := range stats {
		var child, parent int
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
		if _, err := fmt.Sscan(string(after), new(string), &parent); err != nil {
			continue
		}
		if _, err := fmt.Sscan(filepath.Base(filepath.Dir(path)), &child); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		d := next[0]
		all, next = append(all, d), append(next[1:], children[d]...)
	}
	return all
}

func allStopped(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// pid (name) state ..., where the name may contain any character
		_, after, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
		if len(after) == 0 || after[0] != 'T' && after[0] != 'Z' {
			return false, nil
		}
	}
	return true, nil // without threads, the process has ended
}
