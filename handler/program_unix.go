//go:build unix

package handler

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/mutex"
)

// runProgram runs cmd in a process group of its own, and ends the group with ctx and with the
// program. It returns when the program has been waited for.
//
// The goroutine keeps its thread, since Linux takes the end of the thread that started a
// process for the death of its parent.
func runProgram(ctx context.Context, cmd *exec.Cmd, killAfter time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return err
	}
	g := &group{pid: cmd.Process.Pid}
	stop := context.AfterFunc(ctx, func() { g.terminate(cmp.Or(killAfter, defaultKillAfter)) })
	defer stop()
	if awaitExit(g.pid) {
		g.end() // before Wait, which frees the ID for other processes and waits for the output
		return cmd.Wait()
	}
	defer g.end()
	return cmd.Wait()
}

// group is the process group of a program that was started.
type group struct {
	pid int // of the program, also the ID of the group

	mu    mutex.Mutex
	timer *time.Timer // sends SIGKILL; nil before SIGTERM
	ended bool        // the ID may belong to another group
}

// terminate asks the group to end, and kills it after a grace. A negative grace kills it at once.
func (g *group) terminate(grace time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ended:
	case grace < 0:
		g.signalLocked(syscall.SIGKILL)
	default:
		g.signalLocked(syscall.SIGTERM)
		g.timer = time.AfterFunc(grace, func() { g.terminate(-1) })
	}
}

// end kills the processes of the group that are left.
func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.signalLocked(syscall.SIGKILL)
	g.ended = true
	if g.timer != nil {
		g.timer.Stop()
	}
}

func (g *group) signalLocked(s syscall.Signal) { _ = syscall.Kill(-g.pid, s) }

func signalOf(state *os.ProcessState) os.Signal {
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return s.Signal()
	}
	return nil
}
