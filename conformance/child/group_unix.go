//go:build unix

package child

import (
	"fmt"
	"syscall"
)

func ownGroup(a *syscall.SysProcAttr) { a.Setpgid = true }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// Pause suspends the process (SIGSTOP): it keeps memory, files and connections, and does
// not run. Pause returns when all threads are suspended.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p)
}

// Resume continues a paused process (SIGCONT).
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

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
