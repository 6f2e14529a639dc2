package handler

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// state returns the letter of a process's state and its parent, or "" if there is no such process.
func state(pid string) (letter, parent string) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[0], fields[1]
}

// requireDead waits until a process has ended, waited for or not.
func requireDead(t *testing.T, pid string) {
	t.Helper()
	require.Eventually(t, func() bool {
		s, _ := state(pid)
		return s == "" || s == "Z" || s == "X"
	}, patience, tick, "process %s lives", pid)
}

// children returns the processes of this one, zombies included.
func children(t *testing.T) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range all {
		if _, parent := state(filepath.Base(dir)); parent == fmt.Sprint(os.Getpid()) {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

func TestCommand_LeavesNoProcess(t *testing.T) {
	noLeak(t)
	ctx, stop := context.WithCancelCause(t.Context())
	var runs sync.WaitGroup
	begin := func(script string) *journal {
		log := &journal{}
		h := Shell(script)
		h.Logger = log.logger()
		runs.Go(func() { _ = h.Handle(ctx, run()) })
		return log
	}
	for _, script := range []string{"exit 0", "exit 1", "kill -9 $$", "sleep 600 &"} {
		for range 5 {
			begin(script)
		}
	}
	var waiting []*journal
	for _, script := range []string{"echo ready; exec sleep 600", "echo ready; sleep 600 & wait", "echo ready; sleep 600 | sleep 600"} {
		for range 5 {
			waiting = append(waiting, begin(script))
		}
	}
	for _, log := range waiting {
		log.await(t, "ready")
	}
	stop(errStop)
	runs.Wait()
	assert.Empty(t, children(t))
}

// A process that the program started in its group would write after the end of the run.
func TestCommand_KillsTheRestOfTheGroup(t *testing.T) {
	noLeak(t)
	var log journal
	h := Shell(`(trap '' TERM; exec sleep 600) & echo $!`)
	h.Logger = log.logger()
	require.NoError(t, h.Handle(t.Context(), run()))
	assert.Equal(t, []string{"output"}, log.messages(), "the pipe that the child held has held nothing up")
	requireDead(t, strings.TrimPrefix(log.lines()[0], "stdout: "))
}

func TestCommand_AProcessThatLeftTheGroupDoesNotHoldUpTheRun(t *testing.T) {
	noLeak(t)
	var log journal
	h := Shell(`setsid sh -c 'echo $$; exec sleep 600' & while ! kill -0 -$! 2>/dev/null; do sleep 0.01; done`)
	h.Logger = log.logger()
	require.NoError(t, await(t, start(t.Context(), h, run())))
	assert.Equal(t, []string{"output", "program has ended, and a process that left its group holds its output open"}, log.messages())
	pid := strings.TrimPrefix(log.lines()[0], "stdout: ")
	s, _ := state(pid)
	assert.NotContains(t, []string{"", "Z", "X"}, s, "it lives")
	var n int
	_, err := fmt.Sscan(pid, &n)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(n, syscall.SIGKILL))
}

func TestCommand_DiesWithItsParent(t *testing.T) {
	path, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command(path)
	parent.Env = append(os.Environ(), actVar+"=run a sleep", noExitDelay)
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	pid, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid = strings.TrimSpace(pid)
	s, parentOf := state(pid)
	assert.NotContains(t, []string{"", "Z", "X"}, s, "it lives")
	assert.Equal(t, fmt.Sprint(parent.Process.Pid), parentOf)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	requireDead(t, pid)
}

// Linux takes the end of the thread that started a process for the death of its parent.
func TestCommand_OutlivesThreads(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		churn.Go(func() {
			for ctx.Err() == nil {
				done := make(chan struct{})
				go func() {
					defer close(done)
					runtime.LockOSThread() // the thread ends with the goroutine
				}()
				<-done
			}
		})
	}
	defer churn.Wait()
	defer stop()
	var runs sync.WaitGroup
	for range 20 {
		runs.Go(func() {
			h := Shell("sleep 0.2")
			h.Logger = slog.New(slog.DiscardHandler)
			assert.NoError(t, h.Handle(t.Context(), run()))
		})
	}
	runs.Wait()
}
