package child

import (
	"context"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcess_EndsWhenItsParentIsKilled(t *testing.T) {
	parent, pid := startParent(t)
	require.False(t, dead(t, pid))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return dead(t, pid) }, patience, tick)
}

// onDyingThread calls f on a thread that ends afterwards.
func onDyingThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() { // the first thread, which never ends
			done <- onDyingThread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}

// The kernel treats the end of the forking thread as the death of the parent.
func TestProcess_OutlivesTheThreadOfItsCaller(t *testing.T) {
	var naive *exec.Cmd
	err := onDyingThread(func() error {
		naive = exec.Command("sleep", "600")
		naive.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return naive.Start()
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- naive.Wait() }()
	select {
	case <-ended: // shows that threads of this test do end
	case <-time.After(patience):
		_ = naive.Process.Kill()
		t.Fatal("the thread did not end")
	}

	var p *Process
	err = onDyingThread(func() (err error) {
		p, err = Start(exec.Command("sleep", "600"))
		return err
	})
	require.NoError(t, err)
	defer p.Kill()
	select {
	case <-p.Done():
		t.Fatal("the process ended with the thread")
	case <-time.After(100 * time.Millisecond):
	}
	require.False(t, dead(t, p.Pid()))
}

func TestProcess_OutlivesShortLivedThreads(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		churn.Go(func() {
			for ctx.Err() == nil {
				_ = onDyingThread(func() error { return nil })
			}
		})
	}
	var ps []*Process
	for range 100 {
		ps = append(ps, startSleep(t))
	}
	stop()
	churn.Wait()
	for _, p := range ps {
		require.False(t, dead(t, p.Pid()))
	}
}
