package importing

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// execute runs a command line of import.
func execute(t *testing.T, in string, args ...string) (out, errs string, err error) {
	t.Helper()
	cmd := Command()
	var o, e bytes.Buffer
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(slices.Concat([]string{}, args)) // of nil, cobra takes the arguments of the test
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return o.String(), e.String(), err
}

func TestCommand_ConvertsACrontab(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crontab")
	require.NoError(t, os.WriteFile(file, []byte("0 3 * * * root sweep\n"), 0o600))
	fromFile, errs, err := execute(t, "", "crontab", file, "--timezone", "Europe/Berlin", "--namespace", "billing", "--start-paused")
	require.NoError(t, err)
	assert.Equal(t, "imported 1 job, with 1 note in the output\n", errs)
	assert.Contains(t, fromFile, "namespace: billing\ndefaults:\n  timezone: Europe/Berlin\njobs:\n  sweep:\n")
	assert.Contains(t, fromFile, "start_paused: true\n    shell: sweep\n")
	fromInput, _, err := execute(t, "0 3 * * * root sweep\n", "crontab", "--system=false")
	require.NoError(t, err)
	assert.Contains(t, fromInput, "from standard input, read as a user's crontab")
	assert.Contains(t, fromInput, "shell: root sweep\n")
}

func TestCommand_ReportsMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"crontab a b":              "accepts at most 1 arg(s), received 2",
		"crontab nosuch":           "read the crontab: open nosuch: ",
		"crontab --timezone Mars":  `--timezone: time zone "Mars": unknown time zone Mars`,
		"crontab --timezone Local": "--timezone: time zone Local differs between instances; name a zone",
		"crontab --system=maybe":   "invalid argument",
	} {
		out, _, err := execute(t, "", strings.Fields(line)...)
		assert.ErrorContains(t, err, want, line)
		assert.Empty(t, out, line)
	}
	_, _, err := execute(t, "61 * * * * a\n* * * *\n", "crontab", "-")
	assert.EqualError(t, err, `standard input:1: minute "61": 61 is not within 0 to 59`+"\n"+
		"standard input:2: a line has five fields of times and a command, or sets a variable as NAME=VALUE")
}

func TestCommand_ConvertsTheOtherJobs(t *testing.T) {
	out, _, err := execute(t, "61 * * * * a\n* * * * * b\n* * * *\n", "crontab", "-")
	mistakes := []string{
		`standard input:1: minute "61": 61 is not within 0 to 59`,
		"standard input:3: a line has five fields of times and a command, or sets a variable as NAME=VALUE",
	}
	assert.EqualError(t, err, "not all jobs are converted:\n"+strings.Join(mistakes, "\n"))
	assert.Contains(t, out, "jobs:\n  b:\n")
	words := strings.Fields(strings.ReplaceAll(out, "#", ""))
	for _, m := range mistakes {
		assert.Contains(t, strings.Join(words, " "), "NOT CONVERTED: "+m)
	}
}

func TestCommand_ReportsMistakesAboutElasticJob(t *testing.T) {
	digest := filepath.Join(t.TempDir(), "digest")
	require.NoError(t, os.WriteFile(digest, []byte("secret\n"), 0o600))
	for line, want := range map[string]string{
		"elasticjob":                                  "accepts 1 arg(s), received 0",
		"elasticjob a:2181/x":                         `"a:2181/x" is not of the form zookeeper://HOST[:PORT],HOST[:PORT]/NAMESPACE`,
		"elasticjob zk://a/x --to xml":                `--to is "xml", not jobs or go`,
		"elasticjob zk://a/x --package func":          `--package is "func", not the name of a Go package`,
		"elasticjob zk://a/x --job [":                 `--job "[": syntax error in pattern`,
		"elasticjob zk://a/x --timezone Mars":         "unknown time zone Mars",
		"elasticjob zk://a/x --digest-file nosuch":    "--digest-file: open nosuch: ",
		"elasticjob zk://a/x --digest-file " + digest: "--digest-file: the first line of " + digest + " is not of the form USER:PASSWORD",
	} {
		out, _, err := execute(t, "", strings.Fields(line)...)
		assert.ErrorContains(t, err, want, line)
		assert.NotContains(t, err.Error(), "secret")
		assert.Empty(t, out, line)
	}
}
