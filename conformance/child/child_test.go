package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	patience = 20 * time.Second
	tick     = 5 * time.Millisecond
)

func startSleep(t *testing.T) *Process {
	p, err := Start(exec.Command("sleep", "600"))
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

// state returns the letter of a process's state, or "" if there is no such process.
func state(t testing.TB, pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if os.IsNotExist(err) {
		return ""
	}
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:1]
}

// dead reports whether a process has ended, waited for or not.
func dead(t testing.TB, pid int) bool {
	s := state(t, pid)
	return s == "" || s == "Z" || s == "X"
}

func TestKill(t *testing.T) {
	t.Run("returns when the process has ended", func(t *testing.T) {
		p := startSleep(t)
		require.False(t, dead(t, p.Pid()))
		p.Kill()
		require.Empty(t, state(t, p.Pid()))
		require.Error(t, p.Err())
		p.Kill()
	})
	t.Run("ends a paused process", func(t *testing.T) {
		p := startSleep(t)
		require.NoError(t, p.Pause())
		p.Kill()
		require.Empty(t, state(t, p.Pid()))
	})
	t.Run("ends the processes of its group", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pid")
		p, err := Start(exec.Command("sh", "-c", "sleep 600 & echo $! >"+file+"; wait"))
		require.NoError(t, err)
		defer p.Kill()
		var pid int
		require.Eventually(t, func() bool {
			b, _ := os.ReadFile(file)
			n, _ := fmt.Sscan(string(b), &pid)
			return n == 1
		}, patience, tick)
		p.Kill()
		require.Eventually(t, func() bool { return dead(t, pid) }, patience, tick)
	})
}

func TestPause_HoldsUntilResume(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	p, err := Start(exec.Command("sh", "-c", "while :; do echo >>"+out+"; done"))
	require.NoError(t, err)
	defer p.Kill()
	size := func() int64 {
		info, err := os.Stat(out)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	grows := func() bool {
		before := size()
		return size() > before
	}
	require.Eventually(t, grows, patience, tick)
	require.NoError(t, p.Pause())
	require.Equal(t, "T", state(t, p.Pid()))
	require.Never(t, grows, 100*time.Millisecond, tick)
	require.NoError(t, p.Resume())
	require.Eventually(t, grows, patience, tick)
}

// startWithSessionLeader starts a process with a child that has left its group, as the processes of a server of PostgreSQL do.
func startWithSessionLeader(t *testing.T) (p *Process, pid int) {
	file := filepath.Join(t.TempDir(), "pid")
	p, err := Start(exec.Command("sh", "-c", "setsid sh -c 'echo $$ >"+file+"; while :; do :; done' & wait"))
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(file)
		n, _ := fmt.Sscan(string(b), &pid)
		return n == 1
	}, patience, tick)
	return p, pid
}

func TestProcess_IncludesDescendantsInOtherGroups(t *testing.T) {
	p, pid := startWithSessionLeader(t)
	require.NoError(t, p.Pause())
	require.Equal(t, "T", state(t, pid))
	require.NoError(t, p.Resume())
	require.Eventually(t, func() bool { return state(t, pid) != "T" }, patience, tick)
	p.Kill()
	require.Eventually(t, func() bool { return dead(t, pid) }, patience, tick)
}

func TestPause_OfAProcessThatHasEnded(t *testing.T) {
	p := startSleep(t)
	p.Kill()
	require.ErrorContains(t, p.Pause(), "has ended")
	require.ErrorContains(t, p.Resume(), "has ended")
}

func TestStart_FailsWithTheProgramsName(t *testing.T) {
	_, err := Start(exec.Command("/nowhere/program"))
	require.ErrorContains(t, err, "start /nowhere/program")
}

func TestRun(t *testing.T) {
	require.NoError(t, Run(t.Context(), exec.Command("true")))
	require.Error(t, Run(t.Context(), exec.Command("false")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, Run(ctx, exec.Command("sleep", "600")), context.DeadlineExceeded)
}

func TestAwaitReady(t *testing.T) {
	never := errors.New("not yet")
	t.Run("returns when the probe succeeds", func(t *testing.T) {
		tries := 0
		require.NoError(t, startSleep(t).AwaitReady(t.Context(), func(context.Context) error {
			if tries++; tries < 3 {
				return never
			}
			return nil
		}))
	})
	t.Run("bounds each probe", func(t *testing.T) {
		tries := 0
		require.NoError(t, startSleep(t).AwaitReady(t.Context(), func(ctx context.Context) error {
			if tries++; tries == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}))
	})
	t.Run("fails when the process ends", func(t *testing.T) {
		p, err := Start(exec.Command("false"))
		require.NoError(t, err)
		require.ErrorContains(t, p.AwaitReady(t.Context(), func(context.Context) error { return never }), "exit status 1")
	})
	t.Run("fails when its context ends", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := startSleep(t).AwaitReady(ctx, func(context.Context) error { return never })
		require.ErrorIs(t, err, never)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// asParent makes this test binary act as a parent that is to be killed.
const asParent = "ROTA_TEST_AS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) != "" {
		runAsParent()
	}
	m.Run()
}

// runAsParent starts a process, prints its ID and waits to be killed.
func runAsParent() {
	p, err := Start(exec.Command("sleep", "600"))
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Pid())
	select {
	case <-p.Done():
	case <-time.After(time.Minute):
	}
	os.Exit(1)
}

func startParent(t *testing.T) (parent *exec.Cmd, childPid int) {
	parent = exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), asParent+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &childPid)
	require.NoError(t, err)
	return parent, childPid
}
