package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
)

// execute runs a command line with nothing in its environment.
func execute(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	s := settings.New(nil)
	s.Getenv = func(string) string { return "" }
	var o, e bytes.Buffer
	code = run(t.Context(), s, args, Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestRun_RefusesCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"nosuch":                 `unknown command "nosuch"`,
		"demo --nosuch":          "unknown flag: --nosuch",
		"demo extra":             `unknown command "extra"`,
		"demo -o json -n a":      `--namespace does not apply to "rota demo"`,
		"-w demo":                `--watch does not apply to "rota demo"`,
		"demo --instances seven": `invalid argument "seven" for "--instances" flag: it is not a whole number`,
		"demo --instances 0":     `invalid argument "0" for "--instances" flag: it is below 1`,
		"demo --shards 0":        `invalid argument "0" for "--shards" flag: it is below 1`,
		"demo --kill -1":         `invalid argument "-1" for "--kill" flag: it is below 0`,
		"run a --revision -1":    `invalid argument "-1" for "--revision" flag: it is below 0`,
		"run a --workers -1":     `invalid argument "-1" for "--workers" flag: it is below 0`,
		"run a --weight 1001":    `invalid argument "1001" for "--weight" flag: it is above 1000`,
		"validate a --fires 0":   `invalid argument "0" for "--fires" flag: it is below 1`,
	} {
		code, out, errs := execute(t, strings.Fields(line)...)
		assert.Equal(t, exit.Usage, code, line)
		assert.Contains(t, errs, want, line)
		assert.Empty(t, out, line)
	}
}

func TestRun_DemoHasItsOwnFlags(t *testing.T) {
	code, out, errs := execute(t, "demo", "--registry", "memory", "--timeout", "1ns", "--dir", t.TempDir())
	assert.Equal(t, exit.Failed, code)
	assert.Contains(t, errs, "demo failed: ")
	assert.Empty(t, out)
	_, help, _ := execute(t, "demo", "--help")
	assert.NotContains(t, help, "Global Flags")
	assert.NotContains(t, help, "--watch")
}

func TestRun_ImportHasItsOwnFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crontab")
	require.NoError(t, os.WriteFile(file, []byte("0 3 * * * sweep\n"), 0o600))
	code, out, errs := execute(t, "import", "crontab", file, "--namespace", "billing", "--timezone", "UTC")
	assert.Equal(t, exit.OK, code, errs)
	assert.Contains(t, out, "namespace: billing\n")
	for _, line := range []string{
		"import crontab " + file + " -o json", "import crontab " + file + " --timezone Mars", "import elasticjob a:2181", "import elasticjob", "import nosuch",
		"import elasticjob zk://a/x --to xml", "import elasticjob zk://a/x --registry zk://a", "import crontab --to go",
	} {
		code, out, _ := execute(t, strings.Fields(line)...)
		assert.Equal(t, exit.Usage, code, line)
		assert.Empty(t, out, line)
	}
	require.NoError(t, os.WriteFile(file, []byte("0 3 * *\n"), 0o600))
	code, _, errs = execute(t, "import", "crontab", file)
	assert.Equal(t, exit.Failed, code)
	assert.Contains(t, errs, file+":1: ")
}

func TestElasticJobPage_NamesCommandsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/elastic-job.md")
	require.NoError(t, err)
	root, _ := newRoot(settings.New(nil), Streams{})
	known := map[string]bool{}
	for _, c := range root.Commands() {
		known[c.Name()] = true
	}
	named := regexp.MustCompile("`rota ([a-z]+)").FindAllStringSubmatch(string(page), -1)
	assert.Greater(t, len(named), 20)
	for _, m := range named {
		assert.True(t, known[m[1]], "rota %s", m[1])
	}
}

func TestHelp_AnswersWhatNewUsersAsk(t *testing.T) {
	for line, want := range map[string]string{
		"pause --help":    "never run and are not counted as skipped",
		"dev --help":      "the etcd in PATH is started, or that which ROTA_ETCD names",
		"dev etcd --help": "in a checkout of the rota repository.\nElsewhere, it starts the etcd in PATH",
	} {
		code, out, _ := execute(t, strings.Fields(line)...)
		assert.Equal(t, exit.OK, code, line)
		assert.Contains(t, out, want, line)
	}
}

func TestRun_RunsAndValidatesFiles(t *testing.T) {
	code, out, _ := execute(t, "validate", "../../../../examples/jobs.yaml")
	assert.Equal(t, exit.OK, code)
	assert.Contains(t, out, "is valid: 3 jobs")
	code, _, errs := execute(t, "run", "--allow-root", "--registry", "redis://a", "../../../../examples/jobs.yaml")
	assert.Equal(t, exit.Usage, code)
	assert.Contains(t, errs, `the registry is "redis://a", not memory`, "run has a flag of its own with this name")
	for _, line := range []string{"run -w x", "run --context x y", "validate -o json x", "dev etcd --registry memory"} {
		code, _, errs := execute(t, strings.Fields(line)...)
		assert.Equal(t, exit.Usage, code, line)
		assert.Contains(t, errs, "does not apply", line)
	}
	for _, line := range []string{"run --help", "validate --help", "dev --help", "dev etcd --help"} {
		_, help, _ := execute(t, strings.Fields(line)...)
		assert.NotContains(t, help, "Global Flags", line)
		for l := range strings.Lines(help) {
			assert.LessOrEqual(t, len(strings.TrimRight(l, "\n")), 132, line)
		}
	}
}
