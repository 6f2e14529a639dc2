package serve

import (
	"fmt"
	"syscall"
)

const setDumpable = 4 // PR_SET_DUMPABLE

// hideProcess makes the memory and the environment of this process, which hold passwords, unreadable below /proc for other
// processes of its user, such as the programs of jobs. Programs that it starts are not affected.
func hideProcess() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0); errno != 0 {
		return fmt.Errorf("hide the environment of this process: %w", errno)
	}
	return nil
}
