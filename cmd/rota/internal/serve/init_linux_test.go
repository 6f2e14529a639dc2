package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// childrenOf returns the processes of a parent, with their states.
func childrenOf(t *testing.T, parent int) (pids, states []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[1] == fmt.Sprint(parent) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
			states = append(states, fields[0])
		}
	}
	return pids, states
}

func TestInit_ReapsOrphansAndLosesNoExitCode(t *testing.T) {
	c := startRun(t, "--init", writeFile(t, `jobs:
  orphan: {every: 1s, shards: 8, shell: "setsid sh -c 'echo $$; sleep 0.2' & sleep 0.1; exit 3"}
  short: {every: 1s, shards: 8, ok_exit: [3], shell: "exit 3"}
`))
	require.Eventually(t, func() bool { return len(c.lines(t, "orphan")) >= 24 }, patience, tick)
	first := c.lines(t, "orphan")[:24] // their process IDs
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(first, func(pid string) bool {
			_, err := os.Stat("/proc/" + pid)
			return err == nil
		})
	}, patience, tick, "all orphans have ended, and none is left as a zombie")
	pids, _ := childrenOf(t, c.Pid())
	require.NotEmpty(t, pids, "the process that does the work")

	c.send(t, syscall.SIGTERM)
	assert.Equal(t, 0, c.exitCode(t))
	failed := append(c.find(t, "run failed"), c.find(t, "more runs failed")...)
	require.NotEmpty(t, failed)
	for _, r := range failed {
		assert.Equal(t, "orphan", r["job"], "short has no failures")
		assert.Contains(t, fmt.Sprint(r), "exit code 3")
	}
	assert.NotContains(t, c.text(), initVar)
}

func TestInit_PassesSignalsOnAndReturnsTheExitCode(t *testing.T) {
	c := startRun(t, "--init", writeFile(t, "jobs:\n  stuck: {every: 1s, shell: \"echo init=$ROTA_RUN_INIT; exec sleep 600\"}\n"))
	require.Eventually(t, func() bool { return len(c.lines(t, "stuck")) > 0 }, patience, tick)
	assert.Equal(t, "init=", c.lines(t, "stuck")[0], "programs do not inherit the mark of an init's child")
	pids, _ := childrenOf(t, c.Pid())
	require.Len(t, pids, 1)
	c.send(t, syscall.SIGINT)
	c.awaitText(t, "draining")
	c.send(t, syscall.SIGINT)
	assert.Equal(t, 128+2, c.exitCode(t))
}

func TestInit_TakesTheWorkWithItWhenItIsKilled(t *testing.T) {
	c := startRun(t, "--init", writeFile(t, hello))
	c.awaitText(t, "running jobs of a file")
	pids, _ := childrenOf(t, c.Pid())
	require.Len(t, pids, 1)
	c.send(t, syscall.SIGKILL)
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/" + pids[0])
		var pid int
		_, _ = fmt.Sscan(pids[0], &pid)
		return err != nil || isZombie(pid)
	}, patience, tick)
}
