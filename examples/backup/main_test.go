package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/rotatest"
)

func TestDemo_WritesTwoArchives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, demo(t.Context(), &out))
		assert.Equal(t, "ledger/2000-01-01.tar.gz\norders/2000-01-01.tar.gz\n", out.String())
	})
}

// archives returns the names of the files that the nights have left for a directory.
func archives(t *testing.T, to, name string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(to, name))
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestBackup_KeepsAWeek(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		from, to := f.T().TempDir(), f.T().TempDir()
		for _, name := range []string{"ledger", "orders"} {
			require.NoError(t, writeData(from, name))
		}
		f.Start("a", backupJob(from, to))
		f.Start("b", backupJob(from, to))
		for range 8 {
			f.NextFire("backup")
			f.Settle()
		}
		var week []string
		for day := 2; day <= 8; day++ {
			week = append(week, fmt.Sprintf("2000-01-%02d.tar.gz", day))
		}
		for _, name := range []string{"ledger", "orders"} {
			assert.Equal(t, week, archives(t, to, name))
			data, err := exec.Command("tar", "-xzOf", filepath.Join(to, name, week[6]), name+"/data").Output()
			require.NoError(t, err)
			assert.Equal(t, "data of "+name+"\n", string(data))
		}
		assert.Len(t, f.Runs("backup"), 16, "each directory once a night, on one of the instances")
	})
}

func TestBackup_IsRetried(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		from, to := f.T().TempDir(), f.T().TempDir()
		require.NoError(t, writeData(from, "ledger"))
		f.Start("a", backupJob(from, to))
		f.NextFire("backup")
		f.Sleep(time.Minute)
		assert.Equal(t, []string{"2000-01-01.tar.gz"}, archives(t, to, "ledger"))
		assert.Empty(t, archives(t, to, "orders"), "the directory is missing, and the unfinished archive was removed")
		require.NoError(t, writeData(from, "orders"))
		f.Sleep(15 * time.Minute)
		assert.Equal(t, []string{"2000-01-01.tar.gz"}, archives(t, to, "orders"))
		runs := f.Runs("backup")
		require.Len(t, runs, 3)
		require.Error(t, runs[1].Err)
		require.NoError(t, runs[2].Err)
	})
}

func TestScript_LeavesNothingWhenItIsEnded(t *testing.T) {
	dir := t.TempDir()
	slow := "#!/bin/sh\n: >\"$4\"\nsleep 600\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tar"), []byte(slow), 0o700))
	job := backupJob(dir, filepath.Join(dir, "archives"))
	job.Handler.(*handler.Cmd).Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- job.Handler.Handle(ctx, &executor.Run{RunInfo: executor.RunInfo{ShardParam: "ledger", Fence: 7}})
	}()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "archives", "ledger", "part-7"))
		return err == nil
	}, 20*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-result)
	assert.Empty(t, archives(t, filepath.Join(dir, "archives"), "ledger"))
}
