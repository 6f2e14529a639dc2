package serve

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunCommand_HidesItsEnvironmentFromPrograms(t *testing.T) {
	const getDumpable = 3 // PR_GET_DUMPABLE
	dumpable := func() uintptr {
		value, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, getDumpable, 0, 0)
		require.Zero(t, errno)
		return value
	}
	require.NotZero(t, dumpable())
	defer syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 1, 0)
	cmd := RunCommand(nil, nil)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"/no/such/file", "--allow-root"})
	require.ErrorContains(t, cmd.Execute(), "no such file")
	assert.Zero(t, dumpable())
}
