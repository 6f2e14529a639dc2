package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/rotatest"
)

// processVar makes the binary of the tests a process of the fleet. Its value is the directory and the address.
const processVar = "SHIPPER_TEST_PROCESS"

func TestMain(m *testing.M) {
	if dir, address, ok := strings.Cut(os.Getenv(processVar), " "); ok {
		if err := serve(context.Background(), dir, address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	servertest.Main(m)
}

func TestDemo_LosesNoLine(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		var out bytes.Buffer
		require.NoError(t, demo(f.T().Context(), &out))
		counts := regexp.MustCompile(`^(\d+) of 2000 lines are received; instance a crashes
2000 of 2000 lines are received, (\d+) of them twice
$`).FindStringSubmatch(out.String())
		require.NotNil(t, counts, out.String())
		before, _ := strconv.Atoi(counts[1])
		repeated, _ := strconv.Atoi(counts[2])
		assert.Less(t, before, 2000)
		assert.LessOrEqual(t, repeated, logs/2*pageSize, "a page for each shard of a")
	})
}

func TestProcesses_OnAServer_LoseNoLineWhenOneIsKilled(t *testing.T) {
	const total = 2000
	dir, address := t.TempDir(), servertest.Etcd(t).Addrs()[0]
	require.NoError(t, writeLogs(dir, total))
	start := func() *child.Process {
		path, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(path)
		cmd.Env = append(os.Environ(), processVar+"="+dir+" "+address)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		p, err := child.Start(cmd)
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		return p
	}
	first := start()
	before, err := awaitLines(t.Context(), dir, total/4)
	require.NoError(t, err)
	first.Kill()
	require.Less(t, before, total)
	start()
	_, err = awaitLines(t.Context(), dir, total)
	require.NoError(t, err)
	assertReceived(t, dir, logs*pageSize)
}

// assertReceived compares the lines of the receiver with those of the logs.
func assertReceived(t *testing.T, dir string, mayRepeat int) {
	t.Helper()
	var want []string
	for shard := range logs {
		text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(shard)))
		require.NoError(t, err)
		at := 0
		for l := range strings.Lines(string(text)) {
			want = append(want, fmt.Sprintf("%d/%d %s", shard, at, l))
			at += len(l)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "received"))
	require.NoError(t, err)
	got := slices.Sorted(strings.Lines(string(text)))
	all := len(got)
	got = slices.Compact(got)
	slices.Sort(want)
	assert.Equal(t, want, got)
	assert.LessOrEqual(t, all-len(got), mayRepeat)
}

func TestReadLines_LeavesAnUnfinishedLine(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "2"), []byte("apples\npears\nplu"), 0o600))
	lines, next, err := readLines(dir, 2, "", 10)
	require.NoError(t, err)
	assert.Equal(t, []line{{"2/0", "apples\n"}, {"2/7", "pears\n"}}, lines)
	lines, again, err := readLines(dir, 2, next, 10)
	require.NoError(t, err)
	assert.Empty(t, lines)
	assert.Equal(t, next, again)
}
