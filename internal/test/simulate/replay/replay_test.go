package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var seeds = flag.Int("replay.seeds", 3, "how many seeds to simulate twice")

func TestASeedAlwaysGoesTheSameWay(t *testing.T) {
	dir := t.TempDir()
	simulator, err := simulator(t.Context(), dir)
	require.NoError(t, err)
	transcript := func(seed int) []byte {
		at := filepath.Join(dir, "transcript")
		cmd := exec.CommandContext(t.Context(), simulator.Path, append(simulator.Args[1:],
			fmt.Sprintf("-simulate.seed=%d", seed), "-simulate.transcript="+at)...)
		cmd.Dir, cmd.Env = simulator.Dir, simulator.Env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		b, err := os.ReadFile(at)
		require.NoError(t, err)
		return b
	}
	var before []byte
	same := 0
	for seed := 1; seed <= *seeds; seed++ {
		first := transcript(seed)
		require.Greater(t, bytes.Count(first, []byte("\n")), 1000, "it tells of all commits and functions")
		require.NotEqual(t, before, first, "it is another seed")
		if assert.True(t, bytes.Equal(first, transcript(seed)), "seed %d", seed) {
			same++
		}
		before = first
	}
	t.Logf("%d of %d seeds went the same way twice", same, *seeds)
}

func TestOverlay_RefusesAGoThatItDoesNotKnow(t *testing.T) {
	goroot, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(goroot, "src", "runtime"), 0o700))
	for _, e := range edits {
		require.NoError(t, os.WriteFile(filepath.Join(goroot, "src", "runtime", e.file), []byte("package runtime\n"), 0o600))
	}
	_, err := overlay(goroot, "go1.99", dir)
	require.ErrorContains(t, err, "go1.99 is not a Go that replay knows how to edit")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
