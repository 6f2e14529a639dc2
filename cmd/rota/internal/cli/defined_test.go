package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// offerReports starts an instance with a job in code and the kind "report", and returns what its runs have as parameters.
func offerReports(t *testing.T, f *fleet) <-chan string {
	params := make(chan string, 100)
	f.wrap = func(reg registry.Registry) registry.Registry { return steady{reg} }
	settle := executor.Job{Name: "settle", Schedule: schedule.Every(time.Hour), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}
	e := f.start("web-1", nil, settle)
	require.NoError(t, e.RegisterKind(executor.Kind{
		Name: "report", Description: "a report to a customer", Revision: 2, MaxJobs: 3, Defaults: executor.Job{Timeout: time.Hour},
		Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			params <- r.Job + " " + r.Param
			return nil
		}),
	}))
	time.Sleep(time.Second)
	return params
}

func TestDefine(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		params := offerReports(t, f)
		f.compareScreen(t, "define", "define acme/report --kind report --cron @daily --in Europe/Berlin --param acme timeout=30m")
		assert.Equal(t, "acme/report is unchanged: revision 1\n",
			f.run("define acme/report --kind report --schedule 'cron @daily in Europe/Berlin' --param acme timeout=30m").out)
		f.compareScreen(t, "define-dry", "define acme/report --kind report --every 1h --delete-after never retry.max=3 --dry-run")
		assert.Equal(t, "acme/report is unchanged: revision 1\n",
			f.run("define acme/report --kind report --cron @daily --in Europe/Berlin --param acme timeout=30m --dry-run").out, "the dry run has written nothing")
		r := f.run("define acme/report --kind report --every 1m --param secret --if-revision 1 -o json")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.NotContains(t, r.out, "secret")
		assert.Contains(t, r.out, `"outcome": "changed"`)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "acme/report secret", <-params)

		require.Equal(t, exit.OK, f.run("define acme/reminder --kind report --at 2000-01-02T09:00:00Z --if-absent").code)
		f.compareScreen(t, "definitions", "definitions")
		assert.Contains(t, f.run("job acme/reminder").out, "kind      report, defined as data\n")
		assert.Contains(t, f.run("job acme/reminder").out, "rests     wakes 2000-01-02T08:59:30Z (in 32h)\n")
		assert.Equal(t, "acme/reminder\n", f.run("definitions --prefix acme/rem --kind report -o name").out)
		assert.Equal(t, "no jobs are defined\n", f.run("definitions --kind other").out)
		var v struct {
			Version     int              `json:"version"`
			Definitions []map[string]any `json:"definitions"`
		}
		require.NoError(t, json.Unmarshal([]byte(f.run("definitions -o json").out), &v))
		require.Len(t, v.Definitions, 2)
		assert.Equal(t, 1, v.Version)
		assert.Equal(t, []any{"acme/report", "report", "every 1m", 2.0}, []any{v.Definitions[1]["name"], v.Definitions[1]["kind"], v.Definitions[1]["schedule"], v.Definitions[1]["revision"]})
		time.Sleep(10 * time.Second) // the leader counts
		f.compareScreen(t, "kinds", "kinds")

		for line, want := range map[string]string{
			"__complete define acme/rep":        "acme/report\n",
			"__complete define x --kind ''":     "report\n",
			"__complete delete acme/report ''":  "acme/reminder\n",
			"__complete definitions --kind rep": "report\n",
		} {
			assert.Contains(t, f.run(line).out, want, line)
		}

		r = f.runContext(t.Context(), "delete acme/report", "n\n")
		assert.Equal(t, exit.Usage, r.code)
		assert.Contains(t, r.err, "This will delete acme/report with all records (billing/default). Continue? [y/N]")
		f.compareScreen(t, "delete", "delete acme/report acme/reminder --cancel-runs --yes")
		assert.Equal(t, "no jobs are defined\n", f.run("definitions").out)
		time.Sleep(time.Minute)
		r = f.run("delete acme/report --yes")
		assert.Equal(t, exit.NoJob, r.code)
	})
}

func TestDefine_ExitCodes(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		offerReports(t, f)
		require.Equal(t, exit.OK, f.run("define a --kind report --every 1h").code)
		for _, c := range []struct {
			line string
			code int
			err  string
		}{
			{"define", exit.Usage, "0 arguments given"},
			{"define b --kind report --every 1h --prune", exit.Usage, "--prune and --prefix need --file"},
			{"define b -f jobs.yaml", exit.Usage, `"b": with --file, the file has the jobs`},
			{"define -f jobs.yaml --prune", exit.Usage, "--prune needs --prefix"},
			{"define -f jobs.yaml --prefix a", exit.Usage, "--prefix needs --prune"},
			{"define -f jobs.yaml --kind report", exit.Usage, "--kind does not apply with --file"},
			{"define -f jobs.yaml --if-absent", exit.Usage, "--if-absent does not apply with --file"},
			{"define -f nosuch.yaml", exit.Usage, "nosuch.yaml: no such file"},
			{"define b --kind report", exit.Usage, "name one of --schedule, --cron, --every and --at"},
			{"define b --kind report --every 1h --cron '@daily'", exit.Usage, "name one of --schedule"},
			{"define b --every 1h", exit.Usage, "name the kind"},
			{"define b --kind report --every 1h --in Europe/Berlin", exit.Usage, "--in is the zone of --cron and --at"},
			{"define b --kind report --cron '@daily' --in Mars", exit.Usage, `--in is "Mars"`},
			{"define b --kind report --schedule '*/5 * * * *'", exit.Usage, "write schedule='cron */5 * * * *'"},
			{"define b --kind report --cron '0 25 * * *'", exit.Usage, "0 25"},
			{"define b --kind report --every 1h shards=2", exit.Usage, "shards is a flag of define: --shards"},
			{"define b --kind report --every 1h timeout", exit.Usage, `"timeout" is not KEY=VALUE`},
			{"define b --kind report --every 1h misfire=x", exit.Usage, "is it on_misfire?"},
			{"define b --kind report --every 1h timeout=0s", exit.Usage, "timeout is 0s, below 1ms"},
			{"define b --kind report --every 1h timeout=soon", exit.Usage, "timeout"},
			{"define b --kind report --every 1h --shards 0", exit.Usage, "it is below 1"},
			{"define b --kind report --every 1h --delete-after soon", exit.Usage, "neither a duration nor never"},
			{"define b --kind report --every 1h --if-absent --if-revision 1", exit.Usage, "exclude each other"},
			{"define b --kind report --at 1999-01-01T00:00:00Z", exit.Usage, "no fire from now on"},
			{"define b --kind report --at 1999-01-01T00:00:00Z --allow-no-fires", exit.OK, ""},
			{"define b --kind reprot --every 1h", exit.NotMet, "unknown kind"},
			{"define c --kind report --every 1h --kind-revision 3", exit.NotMet, `"report" has revision 2, below 3`},
			{"define c --kind later --every 1h --allow-unknown-kind", exit.OK, ""},
			{"define a --kind other --every 1h --allow-unknown-kind", exit.Usage, `it is "report", and stays`},
			{"define a --kind report --every 1h --if-absent", exit.NotMet, "defined already, as revision 1"},
			{"define a --kind report --every 2h --if-revision 7", exit.NotMet, "it has revision 1, and 7 was expected"},
			{"define settle --kind report --every 1h", exit.NotMet, "registered in code"},
			{"define d --kind report --every 1h", exit.OK, ""},
			{"define e --kind report --every 1h", exit.NotMet, "too many jobs are defined: 3 of kind"},
			{"delete settle --yes", exit.NotMet, "registered in code"},
			{"delete nosuch a --yes", exit.NoJob, `delete "nosuch": unknown job`},
			{"delete a --yes", exit.NoJob, "unknown job"},
			{"definitions x", exit.Usage, `unknown command "x"`},
			{"definitions -w", exit.Usage, "--watch does not apply"},
		} {
			time.Sleep(6 * time.Second) // the leader counts jobs
			r := f.run(c.line)
			assert.Equal(t, c.code, r.code, "%s: %s", c.line, r.err)
			assert.Contains(t, r.err, c.err, c.line)
		}
	})
}

// tenantsFile is a file as a pipeline has it.
const tenantsFile = `namespace: billing
defaults: {timezone: Europe/Berlin}
kinds:
  report: {command: [/opt/bin/report, --customer, "{{.Param}}"], timeout: 30m}
jobs:
  acme/report: {kind: report, schedule: "0 6 * * 1-5", param: acme}
  beta/report: {kind: report, schedule: "0 7 * * 1-5", param: beta, retry: 3}
`

// writeTenants writes a jobs file in the working directory, so that screens name no directory of the test.
func writeTenants(t *testing.T, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile("jobs.yaml", []byte(content), 0o600))
}

func TestDefineFile(t *testing.T) {
	t.Chdir(t.TempDir())
	inFleet(t, func(t *testing.T, f *fleet) {
		offerReports(t, f)
		writeTenants(t, tenantsFile)
		f.compareScreen(t, "define-file-dry", "define -f jobs.yaml --dry-run")
		assert.Equal(t, "no jobs are defined\n", f.run("definitions").out, "the dry run has written nothing")
		f.compareScreen(t, "define-file", "define -f jobs.yaml --reason 'two tenants'")
		assert.Equal(t, "unchanged: 2\n", f.run("define -f jobs.yaml").out)
		assert.Empty(t, f.run("define -f jobs.yaml --dry-run -o name").out, "what a pipeline looks at")

		require.Equal(t, exit.OK, f.run("define gamma/other --kind report --every 1h").code, "another's job")
		writeTenants(t, strings.NewReplacer("acme", "delta", "0 7", "0 8").Replace(tenantsFile))
		r := f.run("define -f jobs.yaml --prune --prefix beta/ --dry-run")
		assert.Equal(t, exit.Usage, r.code)
		assert.Equal(t, `jobs.yaml:6:3: jobs.delta/report: the name does not begin with --prefix "beta/"`+"\n", r.err)

		prefixed := strings.NewReplacer("acme/", "t/acme/", "beta/", "t/beta/").Replace(tenantsFile)
		writeTenants(t, prefixed)
		require.Equal(t, exit.OK, f.run("delete acme/report beta/report --yes").code)
		time.Sleep(10 * time.Second) // the leader counts
		require.Equal(t, exit.OK, f.run("define -f jobs.yaml --prune --prefix t/").code, "nothing to delete, no question")
		writeTenants(t, strings.NewReplacer("t/acme", "t/delta", "acme", "delta", "0 7", "0 8").Replace(prefixed))
		time.Sleep(10 * time.Second)
		f.compareScreen(t, "define-file-refused", "define -f jobs.yaml --prune --prefix t/ --dry-run")
		require.Equal(t, exit.OK, f.run("delete gamma/other --yes").code)
		time.Sleep(10 * time.Second)
		f.compareScreen(t, "define-prune-dry", "define -f jobs.yaml --prune --prefix t/ --dry-run")
		r = f.runContext(t.Context(), "define -f jobs.yaml --prune --prefix t/", "n\n")
		assert.Equal(t, exit.Usage, r.code)
		assert.Contains(t, r.err, "This will delete t/acme/report with all records (billing/default). Continue? [y/N]")
		assert.Equal(t, "t/acme/report\nt/beta/report\n", f.run("definitions -o name").out)
		f.compareScreen(t, "define-prune", "define -f jobs.yaml --prune --prefix t/ --yes")
		assert.Equal(t, "t/beta/report\nt/delta/report\n", f.run("definitions -o name").out)

		r = f.runContext(t.Context(), "define -f - --dry-run -o json", strings.Replace(tenantsFile, "param: acme", "param: secret", 1))
		require.Equal(t, exit.NotMet, r.code, "more than three")
		r = f.runContext(t.Context(), "define -f - --dry-run -o json", "jobs: {t/beta/report: {kind: report, every: 1h, param: secret}}")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.NotContains(t, r.out, "secret")
		assert.Contains(t, r.out, `"dry_run": true`)
	})
}

func TestDefineFile_SetsTheSizesOfPoolsThatHaveNone(t *testing.T) {
	t.Chdir(t.TempDir())
	inFleet(t, func(t *testing.T, f *fleet) {
		offerReports(t, f)
		require.Equal(t, exit.OK, f.run("set-pool db 3").code)
		writeTenants(t, "pools: {db: 8, held: 0}\n"+strings.Replace(tenantsFile, "param: beta", "param: beta, pool: db", 1))
		const kept = "note: pool db keeps size 3; jobs.yaml has 8, which rota set-pool would set\n"
		r := f.run("define -f jobs.yaml --dry-run")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, kept+"note: pool held gets size 0\n", r.err)
		assert.Equal(t, "db\n", f.run("pools -o name").out)
		r = f.run("define -f jobs.yaml")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, kept, r.err)
		assert.Equal(t, "db\nheld\n", f.run("pools -o name").out)
		writeTenants(t, "pools: {more: 1}\n"+tenantsFile+"  bad: {kind: nosuch, every: 1h}\n")
		require.Equal(t, exit.NotMet, f.run("define -f jobs.yaml").code)
		assert.Equal(t, "db\nheld\n", f.run("pools -o name").out, "a file that is refused sets none")
	})
}

func TestDefineFile_ReportsAllRefusalsWithTheirLines(t *testing.T) {
	t.Chdir(t.TempDir())
	inFleet(t, func(t *testing.T, f *fleet) {
		offerReports(t, f)
		for _, c := range []struct {
			what, content string
			code          int
			want          []string
		}{
			{"mistakes in the file", "jobs:\n  a: {kind: report, every: 0s}\n  b: {kind: report, cron: x}\n", exit.Usage, []string{
				"jobs.yaml:2:28: jobs.a.every: is 0s, below 1ms", "jobs.yaml:3:21: jobs.b.cron: unknown key: use schedule",
			}},
			{"conditions of the fleet", "jobs:\n  a: {kind: nosuch, every: 1h}\n  b: {kind: report, kind_revision: 3, every: 1h}\n  settle: {kind: report, every: 1h}\n", exit.NotMet, []string{
				`jobs.yaml:2:13: jobs.a.kind: unknown kind: no process has stored "nosuch"`,
				`jobs.yaml:3:36: jobs.b.kind_revision: unknown kind: "report" has revision 2, below 3`,
				"jobs.yaml:4:3: jobs.settle: the job is registered in code",
			}},
			{"too many", "jobs:\n  a: {kind: report, every: 1h}\n  b: {kind: report, every: 1h}\n  c: {kind: report, every: 1h}\n  d: {kind: report, every: 1h}\n", exit.NotMet, []string{
				`jobs.yaml:5:3: jobs.d: too many jobs are defined: 3 of kind "report", at most 3`,
			}},
			{"both", "jobs:\n  a: {kind: nosuch, every: 1h}\n  b: {kind: report, every: 1h, shards: [" + strings.Repeat(strings.Repeat("x", 1000)+", ", 20) + "x]}\n", exit.Usage, []string{
				`jobs.yaml:2:13: jobs.a.kind: unknown kind: no process has stored "nosuch"`,
				"jobs.yaml:3:3: jobs.b: definition: has 2",
			}},
			{"no job with a kind", "jobs:\n  a: {shell: echo, every: 1h}\n", exit.Usage, []string{"jobs.yaml: no job has a kind, so there is nothing to define"}},
		} {
			writeTenants(t, c.content)
			for _, flags := range []string{" --dry-run", ""} {
				r := f.run("define -f jobs.yaml" + flags)
				assert.Equal(t, c.code, r.code, c.what)
				lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(r.err, "rota: "), "\n"), "\n")
				require.Len(t, lines, len(c.want), "%s: %s", c.what, r.err)
				for i := range c.want {
					assert.True(t, strings.HasPrefix(lines[i], c.want[i]), lines[i])
				}
				assert.Empty(t, r.out)
			}
			assert.Equal(t, "no jobs are defined\n", f.run("definitions").out, "%s: nothing is written", c.what)
		}
	})
}

func TestDefineFile_LeavesPastOneOffsAsTheyAre(t *testing.T) {
	t.Chdir(t.TempDir())
	inFleet(t, func(t *testing.T, f *fleet) {
		params := offerReports(t, f)
		soon := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		writeTenants(t, "jobs:\n  once: {kind: report, at: "+soon+", param: a}\n  often: {kind: report, every: 1h}\n")
		require.Equal(t, exit.OK, f.run("define -f jobs.yaml --prune --prefix o").code)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, "once a", <-params)
		assert.Equal(t, "unchanged: 2\n", f.run("define -f jobs.yaml --prune --prefix o").out, "it has run, and is not deleted yet")
		writeTenants(t, "jobs:\n  once: {kind: report, at: "+soon+", param: b}\n  often: {kind: report, every: 2h}\n")
		f.compareScreen(t, "define-past", "define -f jobs.yaml --prune --prefix o")
		time.Sleep(2 * time.Hour)
		assert.Equal(t, "often\n", f.run("definitions -o name").out, "it is deleted after an hour")
		r := f.run("define -f jobs.yaml --prune --prefix o --dry-run")
		assert.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, "unchanged: 1\nleft out, as they have no fire from now on: once\n", r.out)
		assert.Empty(t, f.run("define -f jobs.yaml --prune --prefix o --dry-run -o name").out)
		assert.Contains(t, f.run("define -f jobs.yaml --allow-no-fires").out, "created once")
		select {
		case p := <-params:
			assert.NotContains(t, p, "once", "it does not run again")
		default:
		}
	})
}
