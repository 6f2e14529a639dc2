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

// awaitStopped waits until every thread is stopped, since they stop one after the other.
func awaitStopped(p *Process) error {
	for {
		stopped, err := allStopped(p.Pid())
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
		if len(after) == 0 || after[0] != 'T' {
			return false, nil
		}
	}
	return len(stats) > 0, nil
}
