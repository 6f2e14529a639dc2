package conformance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(ReportVariable, dir)
	read := func() string {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		require.NoError(t, err)
		require.Len(t, files, 1)
		text, err := os.ReadFile(files[0])
		require.NoError(t, err)
		return string(text)
	}
	end := beginReport(t, Backend{Packages: []string{"example.org/m/backend", "example.org/client"}})
	require.Equal(t, "run\tbackend\tTestReport\n", read())

	k, w := Case{Code: "K01", Name: "one"}, Case{Code: "W01", Name: "two"}
	end(Summary{Results: []Result{
		{Case: k, Outcome: Passed},
		{Case: w, Outcome: Lacking, Reason: "has\tno\nclock"},
		{Case: w, Outcome: NotRun},
		{Case: k, Outcome: Failed},
	}})
	require.Equal(t, "run\tbackend\tTestReport\n"+
		"case\tpassed\tK01 one\t\n"+
		"case\tlacking\tW01 two\thas no clock\n"+
		"case\tfailed\tK01 one\t\n"+
		"end\n", read())
}

func TestReport_IsNotWrittenUnlessAskedFor(t *testing.T) {
	t.Setenv(ReportVariable, "")
	t.Chdir(t.TempDir())
	beginReport(t, Backend{})(Summary{})
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, files)
}
