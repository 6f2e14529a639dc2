// Package child starts processes that end with the process that started them, on Linux
// even if that one is killed: the servers of a test. Package freeport reserves their ports.
package child

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a started process.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // result of Wait; valid once done is closed
}

// Start starts cmd in a process group of its own, so that an interrupt from the terminal
// does not reach it. Unless its output goes to an *os.File, the output is read to the end
// before Done.
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

// forkAndWait forks on a locked thread and keeps that thread until the process has ended,
// since Linux signals the end of the forking thread as the death of the parent. Without a
// thread of its own, the fork could happen on any thread, including one that ends with a
// locked goroutine.
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

const (
	probeInterval = 10 * time.Millisecond
	// probeTimeout bounds a probe: a starting server may accept a connection and never answer.
	probeTimeout = time.Second
)

// AwaitReady calls probe until it returns nil, with a context of a second each. It fails if the
// process ends before, or when ctx ends, with the last error of probe.
func (p *Process) AwaitReady(ctx context.Context, probe func(ctx context.Context) error) error {
	for {
		within, cancel := context.WithTimeout(ctx, probeTimeout)
		err := probe(within)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(probeInterval):
		case <-p.Done():
			return fmt.Errorf("the process has ended: %v", p.Err())
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended: nil while it runs or if it exited with 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Kill kills the process, its group and, on Linux, its descendants, and returns when the process has
// ended. Calling it twice is legal.
func (p *Process) Kill() {
	select {
	case <-p.done: // its ID may have been reused
	default:
		killTree(p.Pid())
		<-p.done
	}
}

// Terminate sends SIGTERM.
func (p *Process) Terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // fails if it has ended

// Stop terminates the process, and kills it if it is still running after the given time.
// It returns when the process has ended and reports whether it ended in time.
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

// Run starts cmd and waits for it. It kills the process when ctx ends.
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
