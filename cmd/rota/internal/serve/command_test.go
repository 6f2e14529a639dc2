package serve

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
)

// execute runs "rota validate" and returns its output.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := ValidateCommand(nil)
	var out bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(slices.Concat([]string{}, args)) // of nil, cobra takes the arguments of the test
	err := cmd.Execute()
	return out.String(), err
}

func TestDescribe_ShowsJobsAndTheirNextFires(t *testing.T) {
	f := file(t, `revision: 4
namespace: billing
jobs:
  settle: {schedule: "0 3 * * *", timezone: Asia/Shanghai, shards: 3, command: [/bin/echo, a]}
  tenants: {every: 1m, shards: 64, spread: 30s, command: [/bin/echo, b]}
  once: {at: "2026-12-24T18:00:00Z", command: [/bin/echo, c]}
  past: {at: "2020-12-24T18:00:00Z", command: [/bin/echo, c]}
  a-job-with-a-very-long-name: {schedule: "0,10,20,30,40,50 0,2,4,6,8,10,12 * * *", timezone: America/Argentina/Buenos_Aires, command: [/bin/echo, d]}
  again: {fixed_delay: 1m, command: [/bin/echo, e]}
  daemon: {always: true, command: [/bin/echo, f]}
  by-hand: {on: trigger, command: [/bin/echo, g]}
  next: {after: [settle, tenants, once], command: [/bin/echo, h]}
`)
	got, err := describe("jobs.yaml", f, targetOf(t, f), 2, time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	for _, j := range f.Jobs {
		got = strings.ReplaceAll(got, j.Digest[:8], "12345678")
	}
	got = strings.ReplaceAll(got, f.Digest(), "123456789012")
	assert.Equal(t, `jobs.yaml is valid: 9 jobs, revision 4, namespace billing, group default, registry memory, digest 123456789012

JOB                     SHARDS  SCHEDULE                          DIGEST    NEXT FIRES
settle                  3       cron 0 3 * * * in Asia/Shanghai   12345678  2026-11-24 03:00:00 CST
                                                                            2026-11-25 03:00:00 CST
tenants                 64      every 1m spread 30s               12345678  2026-11-23 06:01:00 UTC
                                                                            2026-11-23 06:02:00 UTC
once                    1       at 2026-12-24T18:00:00Z           12345678  2026-12-24 18:00:00 UTC
past                    1       at 2020-12-24T18:00:00Z           12345678  none any more
a-job-with-a-very-lon…  1       cron 0,10,20,30,40,50 0,2,4,6,8…  12345678  2026-11-23 04:00:00 -03
                                                                            2026-11-23 04:10:00 -03
again                   1       fixed delay 1m                    12345678  after the end of a run
daemon                  1       always                            12345678  at once, and again
by-hand                 1       on trigger                        12345678  when it is triggered
next                    1       after settle, tenants, once       12345678  after settle, tenants, …
`, got)
	_, table, _ := strings.Cut(got, "\n\n")
	for line := range strings.Lines(table) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
	}
}

// targetOf returns where an instance with a file joins, without an environment.
func targetOf(t *testing.T, f *jobsfile.File) target {
	t.Helper()
	to, err := (&options{}).targetOf(f)
	require.NoError(t, err)
	return to
}

// Validate has the precedence of rota run: a variable of the environment goes before the file.
func TestValidate_HonoursTheEnvironment(t *testing.T) {
	path := writeFile(t, "registry: etcd://file\nnamespace: file\njobs:\n  a: {every: 1m, command: [/bin/echo]}\n")
	t.Setenv("ROTA_REGISTRY", "zk://zk1,zk2")
	t.Setenv("ROTA_NAMESPACE", "billing")
	t.Setenv("ROTA_GROUP", "night")
	for _, more := range []string{"--label=a=b", "--no-lookup"} {
		out, err := execute(t, path, more)
		require.NoError(t, err)
		assert.Contains(t, out, "namespace billing, group night, registry zk://zk1,zk2, digest")
		assert.Contains(t, out, "warning: registry is zk://zk1,zk2 by ROTA_REGISTRY; the file has etcd://file")
	}
	for _, c := range []struct{ name, value, want string }{
		{"ROTA_REGISTRY", "redis://a", `the registry is "redis://a", not memory`},
		{"ROTA_NAMESPACE", "a//b", "namespace: invalid key"},
		{"ROTA_GROUP", "a/b", "group: invalid key"},
		{"ROTA_PASSWORD_FILE", "/no/such/file", "credentials of the registry: open /no/such/file"},
		{"ROTA_TLS_CA_FILE", "/no/such/ca", "credentials of the registry: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			_, err := execute(t, path)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, exit.Usage, exit.CodeOf(err))
		})
	}
}

func TestValidate(t *testing.T) {
	follower := writeFile(t, "jobs:\n  a: {after: setle, command: [/bin/echo]}\n")
	elsewhere := writeFile(t, "jobs:\n  a: {every: 1m, command: [/no/such/program], run_on: {gpu: yes}}\n")
	for name, c := range map[string]struct {
		args []string
		want string
		code int
	}{
		"a file":                      {[]string{writeFile(t, hello)}, "is valid: 1 job,", exit.OK},
		"a bad file":                  {[]string{writeFile(t, "jobs: []\n")}, "jobs.yaml:1:7: jobs: is a list", exit.Usage},
		"no file":                     {[]string{"/no/such/file"}, "no such file", exit.Usage},
		"a program of the labels":     {[]string{elsewhere, "--label", "gpu=yes"}, "jobs.a.command[0]: cannot run on this host", exit.Usage},
		"a program of other labels":   {[]string{elsewhere, "--label", "gpu=no"}, "is valid", exit.OK},
		"a program without labels":    {[]string{elsewhere}, "is valid", exit.OK},
		"a program, not looked up":    {[]string{elsewhere, "--label", "gpu=yes", "--no-lookup"}, "is valid", exit.OK},
		"no fires":                    {[]string{writeFile(t, hello), "--fires", "0"}, `invalid argument "0" for "--fires" flag: it is below 1`, exit.Usage},
		"too many fires":              {[]string{writeFile(t, hello), "--fires", "1001"}, `invalid argument "1001" for "--fires" flag: it is above 1000`, exit.Usage},
		"a directory of all":          {[]string{inOpenDirectory(t, 0o777)}, "and so replace the file", exit.OK},
		"a job without fires":         {[]string{writeFile(t, "jobs:\n  a: {at: 2020-01-01T00:00:00Z, command: [/bin/echo]}\n")}, "warning: job \"a\" has no fires from now on", exit.OK},
		"a job whose time is over":    {[]string{writeFile(t, "jobs:\n  a: {every: 1m, until: 2020-01-01T00:00:00Z, command: [/bin/echo]}\n")}, "warning: job \"a\" has no fires from now on", exit.OK},
		"a variable of the run":       {[]string{writeFile(t, "jobs:\n  a: {every: 1m, env: {ROTA_JOB: b}, command: [/bin/echo]}\n")}, "warning: jobs.a.env.ROTA_JOB has no effect: each run sets this variable", exit.OK},
		"a variable of the fleet":     {[]string{writeFile(t, "jobs:\n  a: {every: 1m, env: {ROTA_REGISTRY: b}, command: [/bin/echo]}\n")}, "is valid", exit.OK},
		"a name for no shell":         {[]string{writeFile(t, "jobs:\n  a: {every: 1m, env: {A B: c}, command: [/bin/echo]}\n")}, "is not a name that shells can read", exit.OK},
		"a job of other processes":    {[]string{follower}, "warning: job \"a\" follows \"setle\", which is not in this file", exit.OK},
		"the schema":                  {[]string{"--schema"}, string(jobsfile.Schema()), exit.OK},
		"the schema and a file":       {[]string{"--schema", elsewhere}, "validate needs a FILE, or --schema and no FILE", exit.Failed},
		"the example":                 {[]string{"../../../../examples/jobs.yaml"}, "is valid: 3 jobs, revision 1, namespace example", exit.OK},
		"neither a file nor a schema": {nil, "validate needs a FILE", exit.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, c.args...)
			if err != nil {
				out += err.Error()
			}
			assert.Contains(t, out, c.want)
			assert.Equal(t, c.code, exit.CodeOf(err))
		})
	}
}

// A file may be larger than is read at once.
func TestValidate_RefusesALargeFile(t *testing.T) {
	path := writeFile(t, "# "+strings.Repeat("x", 2*jobsfile.MaxBytes))
	_, err := execute(t, path)
	require.ErrorContains(t, err, "the file has more than 1048576 bytes")
	info, statErr := os.Stat(path)
	require.NoError(t, statErr)
	assert.Greater(t, info.Size(), int64(jobsfile.MaxBytes))
}
