//go:build unix

package child

import (
	"fmt"
	"syscall"
)

func ownGroup(a *syscall.SysProcAttr) { a.Setpgid = true }

// killTree kills a process, its group and its descendants. It stops the process first, which could start others meanwhile.
func killTree(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGSTOP)
	for _, d := range descendants(pid) {
		_ = syscall.Kill(d, syscall.SIGKILL)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

// Pause suspends the process and, on Linux, its descendants (SIGSTOP): they keep memory, files and connections, and do
// not run. Pause returns when all their threads are suspended. On other systems, a descendant that has left the
// process group goes on, as those of PostgreSQL do.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p)
}

// Resume continues a paused process and its descendants (SIGCONT).
func (p *Process) Resume() error {
	for _, d := range descendants(p.Pid()) {
		_ = syscall.Kill(d, syscall.SIGCONT)
	}
	return p.signal(syscall.SIGCONT)
}

func (p *Process) signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("signal process %d: it has ended", p.Pid())
	default:
	}
	if err := syscall.Kill(-p.Pid(), s); err != nil {
		return fmt.Errorf("signal process %d: %w", p.Pid(), err)
	}
	return nil
}
