package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func table(t *testing.T, reports ...string) (string, error) {
	dir := t.TempDir()
	for i, text := range reports {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("run-%d", i)), []byte(text), 0o600))
	}
	var out strings.Builder
	err := run(t.Context(), &out, []string{"table", dir})
	return out.String(), err
}

func TestTable(t *testing.T) {
	const (
		memory = "run\tmemory\tTestConformance\n" +
			"case\tpassed\tK01 one\t\n" +
			"case\tlacking\tW08 two\tCompact: keeps no history\n" +
			"case\tlacking\tF15 three\tno quota\n" +
			"case\tlacking\tW09 four\tCompact: keeps no history\n" +
			"end\n"
		etcd = "run\tetcd\tTestConformanceOfMembers\ncase\tpassed\tK01 one\t\nend\n"
	)
	t.Run("prints counts and reasons", func(t *testing.T) {
		out, err := table(t, memory, etcd)
		require.NoError(t, err)
		require.Equal(t, `conformance                     passed   failed  lacking
etcd TestConformanceOfMembers        1        0        0
memory TestConformance               1        0        3
memory TestConformance: lacking W08 W09: Compact: keeps no history
memory TestConformance: lacking F15: no quota
`, out)
	})
	t.Run("fails if a case failed", func(t *testing.T) {
		out, err := table(t, memory, strings.ReplaceAll(etcd, "passed", "failed"))
		require.Error(t, err)
		require.Contains(t, out, "etcd TestConformanceOfMembers: failed K01 one\n")
	})
	t.Run("fails if a run did not end", func(t *testing.T) {
		out, err := table(t, memory, "run\tetcd\tTestConformance\n")
		require.Error(t, err)
		require.Contains(t, out, "etcd TestConformance   did not end\n")
	})
	t.Run("fails if a file is not a report", func(t *testing.T) {
		_, err := table(t, "nonsense\n")
		require.ErrorContains(t, err, "nonsense")
	})
	t.Run("prints nothing without runs", func(t *testing.T) {
		out, err := table(t, "run\tetcd\tTestConformance\nend\n")
		require.NoError(t, err)
		require.Empty(t, out)
	})
}

func TestRun_RejectsUnknownCommands(t *testing.T) {
	for _, args := range [][]string{nil, {"table"}, {"provision", "x"}, {"other"}} {
		require.ErrorContains(t, run(t.Context(), &strings.Builder{}, args), "usage")
	}
	require.NoError(t, run(t.Context(), &strings.Builder{}, []string{"provision"}))
}
