// Package child starts processes that do not outlive the one that started them, even if
// that is killed without a chance to clean up (on Linux; elsewhere only if it is not).
package child

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a process that was started.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; to be read when done is closed
}

// Start starts cmd in a process group of its own, so that a terminal's interrupt does not
// reach it. Its output is read to the end before Done, unless it goes to an *os.File.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	ownGroup(cmd.SysProcAttr)
	dieWithParent(cmd.SysProcAttr)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.forkAndWait(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// forkAndWait forks, and keeps the thread on which it did so until the process has ended: Linux
// counts the end of that thread as the parent's death. Go's scheduler ends a thread when
// the goroutine that is locked to it returns, and any goroutine, with a lock or without
// one, may be on any thread when it forks. Here nobody else gets on this thread.
func (p *Process) forkAndWait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// Pid returns the id of the process.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and left nothing, not even a zombie.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended: nil if it runs or has exited with 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Kill kills the process and those of its group, and returns when it has ended. Calling
// it again is legal.
func (p *Process) Kill() {
	select {
	case <-p.done: // its id may be another's by now
	default:
		killGroup(p.Pid())
		<-p.done
	}
}

// Terminate asks the process to end in good order (SIGTERM).
func (p *Process) Terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // it may have ended

// Stop asks the process to end in good order, and kills it if it has not within a while. It
// returns when the process has ended, and reports whether that was in good time.
func (p *Process) Stop(within time.Duration) bool {
	p.Terminate()
	select {
	case <-p.done:
		return true
	case <-time.After(within):
		p.Kill()
		return false
	}
}

// Run starts cmd and waits for it; if ctx ends it kills it.
func Run(ctx context.Context, cmd *exec.Cmd) error {
	p, err := Start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
		return p.Err()
	case <-ctx.Done():
		p.Kill()
		return context.Cause(ctx)
	}
}
