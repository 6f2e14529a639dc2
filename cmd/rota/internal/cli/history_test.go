package cli

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/history"
)

// putHistory stores two fires of tenants in a database of SQLite, the first of them an hour before now, and more runs, and
// returns its URL.
func putHistory(t *testing.T, now time.Time, period time.Duration, more ...history.Run) string {
	file := filepath.Join(t.TempDir(), "history of runs.db")
	db, err := sql.Open("sqlite", "file:"+file)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, history.Migrate(t.Context(), db, history.SQLite))
	store, err := history.SQL(db, history.SQLite, history.SQLOptions{})
	require.NoError(t, err)
	one := 1
	var b history.Batch
	for n := range 2 {
		at := now.Add(-time.Hour - time.Duration(n)*period)
		b.Fires = append(b.Fires, history.Fire{
			Namespace: "billing", Group: "default", Job: "tenants", Fire: at, Instance: "web-1", Shards: 16, OK: int64(15 + n), Failed: int64(1 - n),
			FirstStart: at, LastEnd: at.Add(9 * time.Second), MaxLate: 11 * time.Millisecond, MaxDuration: 12 * time.Second,
		})
		b.Runs = append(b.Runs, history.Run{
			Namespace: "billing", Group: "default", ID: "tenants/" + string(rune('7'-n)), Job: "tenants", Fire: at, Shard: 7 - n, Shards: 16, Attempt: 1,
			Instance: "web-1", Started: at, Ended: at.Add(time.Duration(n+1) * time.Second), Outcome: history.Succeeded,
		})
	}
	b.Runs[0].Outcome, b.Runs[0].Error, b.Runs[0].ExitCode = history.Failed, "503 Service Unavailable", &one
	b.Runs[0].Output = "asking \x1b[31mtenants\n503 Service Unavailable\n"
	b.Fires[0].Ended, b.Fires[0].FailedShards = now, 1
	b.Fires[0].Crashed, b.Fires[0].Repeated = 1, 1
	b.Fires[1].Skipped, b.Fires[1].SkippedFrom = 3*16, b.Fires[1].Fire.Add(-3*period)
	b.Fires[1].SkippedBy = history.Skips{Overlap: 48}
	b.Fires[0].ItemsFetched, b.Fires[0].ItemsProcessed = 1000, 980
	b.Runs[0].ItemsFetched, b.Runs[0].ItemsProcessed = 70, 50
	b.Runs = append(b.Runs, more...)
	require.NoError(t, store.Write(t.Context(), b))
	require.NoError(t, store.WriteLogs(t.Context(), logsOf(b.Runs[0])))
	return "sqlite:" + file
}

// logsOf returns two pieces of the log of a run, between which lines are missing.
func logsOf(r history.Run) []history.Log {
	p := history.Log{
		Namespace: r.Namespace, Group: r.Group, Job: r.Job, Fire: r.Fire, Run: r.ID, Instance: r.Instance, Shard: r.Shard, Attempt: 1,
		Lines: 2, Written: r.Started.Add(time.Second),
	}
	at := func(ms int) string {
		return r.Started.Add(time.Duration(ms) * time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	p.Text = at(12) + " info begun param=eu\n" + at(40) + " stdout asking \x1b[31mtenants\n"
	last := p
	last.Piece, last.Line, last.Byte, last.Lines, last.Outcome = 1, 120, 4000, 1, r.Outcome
	last.Text = at(990) + " stderr 503 Service Unavailable\n"
	return []history.Log{p, last}
}

// TestPast uses a real clock: a database has goroutines of its own.
func TestPast(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	url := putHistory(t, now, time.Hour)
	show := func(line ...string) (int, string, string) {
		return execute(t, append(line, "-n", "billing", "--history", url)...)
	}
	code, out, errs := show("fires", "tenants", "--since", "9999d", "--time", "utc")
	require.Equal(t, exit.OK, code, errs)
	assert.Equal(t, "FIRE                  WHEN               LATE  TOOK  OK     FAILED  SKIPPED  NOTE\n"+
		"2026-03-01T11:00:00Z  2026-03-01 11:00Z  11ms  9s    15/16  1       0        1 crashed, 1 repeated\n"+
		"2026-03-01T10:00:00Z  2026-03-01 10:00Z  11ms  9s    16/16  0       48       overlap since 07:00:00Z\n", out)
	_, out, _ = show("fires", "tenants", "--since", "9999d", "-o", "wide")
	assert.Regexp(t, `SLOWEST +ITEMS +END\n.+ 980/1000 +1 failed\n.+ - +-\n$`, out)
	_, out, _ = show("fires", "tenants", "--since", "9999d", "--failed", "-o", "name")
	assert.Equal(t, "2026-03-01T11:00:00Z\n", out)
	_, out, _ = show("fires", "tenants", "--since", "1s")
	assert.Equal(t, "no fires\n", out)

	_, out, _ = show("runs", "tenants", "--time", "utc")
	assert.Equal(t, "SHARD  FIRE                  TRY  INSTANCE  ENDED              TOOK  OUTCOME    ERROR\n"+
		"6      2026-03-01T10:00:00Z  1    web-1     2026-03-01 10:00Z  2s    succeeded  -\n"+
		"7      2026-03-01T11:00:00Z  1    web-1     2026-03-01 11:00Z  1s    failed     exit code 1: 503 S..\n", out)
	_, out, _ = show("runs", "tenants", "--time", "utc", "--tail")
	assert.Contains(t, out, "\n\nshard 6, 2026-03-01T10:00:00Z, attempt 1\n  no output kept\n\n"+
		"shard 7, 2026-03-01T11:00:00Z, attempt 1\n  asking  [31mtenants\n  503 Service Unavailable\n")
	for want, args := range map[string][]string{
		"tenants/7\n":            {"--fire", "2026-03-01 11:00"},
		"tenants/6\n":            {"--shard", "0-6"},
		"tenants/6\ntenants/7\n": {"--slowest", "--since", "9999d"},
		"":                       {"--failed", "--since", "1s"},
	} {
		_, out, _ = show(append([]string{"runs", "tenants", "-o", "name"}, args...)...)
		assert.Equal(t, want, out, args)
	}
	_, out, _ = show("runs", "tenants", "--failed", "--since", "9999d", "-o", "json")
	assert.Contains(t, out, `"outcome": "failed"`)
	// A fire whose runs were skipped has no run, and its record may be that of a later fire.
	const skipped = "48 runs skipped of the fires from 2026-03-01T07:00:00Z to 2026-03-01T10:00:00Z: overlap\n"
	_, out, _ = show("runs", "tenants", "--fire", "2026-03-01T08:00:00Z")
	assert.Equal(t, "no runs\n\n"+skipped, out)
	_, out, _ = show("runs", "tenants", "--fire", "2026-03-01T10:00:00Z", "-o", "wide")
	assert.Contains(t, out, "\n"+skipped)
	_, out, _ = show("runs", "tenants", "--fire", "2026-03-01T08:00:00Z", "-o", "json")
	assert.Contains(t, out, "\"skipped_by\": {\n        \"overlap\": 48\n      }")
	_, out, _ = show("runs", "tenants", "--fire", "2026-03-01T06:00:00Z")
	assert.Equal(t, "no runs\n", out)
	_, out, _ = show("runs", "tenants", "--fire", "2026-03-01T11:00:00Z", "-o", "wide")
	assert.Contains(t, out, "50/70")
	const log = "2026-03-01T11:00:00.012Z    7 info    begun param=eu\n2026-03-01T11:00:00.040Z    7 stdout  asking  [31mtenants\n" +
		"-                           7 missing 118 lines (3903 bytes) are missing\n2026-03-01T11:00:00.990Z    7 stderr  503 Service Unavailable\n" +
		"2026-03-01T11:00:01.000Z    7 end     failed\n"
	code, out, errs = show("logs", "tenants")
	require.Equal(t, exit.OK, code, errs)
	assert.Equal(t, log, out)
	for want, args := range map[string][]string{
		log: {"--fire", "2026-03-01T11:00:00Z", "--shard", "6-8"}, "no log\n": {"--fire", "2026-03-01T10:00:00Z"},
		"tenants/7\n": {"-o", "name"},
	} {
		_, out, _ = show(append([]string{"logs", "tenants"}, args...)...)
		assert.Equal(t, want, out, args)
	}
	for _, args := range [][]string{{"--shard", "6"}, {"--trigger", "1"}, {"--since", "1s"}} {
		_, out, _ = show(append([]string{"logs", "tenants"}, args...)...)
		assert.Equal(t, "no log\n", out, args)
	}
	_, out, _ = show("logs", "tenants", "--since", "9999d")
	assert.Equal(t, log, out)
	_, out, _ = show("logs", "tenants", "-o", "json")
	assert.Contains(t, out, "\"kind\": \"missing\"")
	assert.Contains(t, out, "\"text\": \"begun param=eu\"")
	code, out, _ = show("logs", "other")
	assert.Equal(t, exit.NoJob, code)
	assert.Contains(t, out, "no log\n\nnote  The history ")
	_, out, _ = show("runs", "other", "-o", "json")
	assert.Contains(t, out, `"runs": []`)
}

// What rota run records, fires and runs show by the same file.
func TestHistory_OfAJobsFileIsRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "jobs.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`namespace: billing
group: night
history: {url: "sqlite:runs of the night.db", keep: all} # beside this file
jobs:
  settle: {every: 1s, shards: 2, shell: '[ $ROTA_SHARD = 0 ] || { echo no paper >&2; exit 3; }'}
`), 0o600))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	var log output
	go func() {
		ended <- run(ctx, settings.New(nil), []string{"run", file, "--allow-root", "--instance", "web-1"}, Streams{In: strings.NewReader(""), Out: &log, Err: &log})
	}()
	var out string
	require.Eventually(t, func() bool {
		_, out, _ = execute(t, "fires", "settle", "--file", file)
		return strings.Count(out, " 1/2 ") > 1
	}, time.Minute, 100*time.Millisecond, "%s\n%s", out, &log)
	stop()
	require.Zero(t, <-ended, &log)

	code, out, errs := execute(t, "runs", "settle", "--file", file)
	require.Equal(t, exit.OK, code, errs)
	assert.Regexp(t, `(?m)^0 .+ web-1 .+ succeeded +-$`, out)
	assert.Regexp(t, `(?m)^1 .+ web-1 .+ failed +exit code 3: no paper$`, out)
	_, out, _ = execute(t, "runs", "settle", "--file", file, "--failed", "-o", "json")
	assert.Contains(t, out, `no paper`)
	_, out, _ = execute(t, "logs", "settle", "--file", file)
	assert.Regexp(t, `(?m)^.{24}    1 stderr  no paper$`, out)
	assert.Regexp(t, `(?m)^.{24}    1 end     failed$`, out)
	for want, args := range map[string][]string{
		"in other/night": {"-n", "other"}, "no such table": {"--history", "sqlite:" + file + ".empty"},
	} {
		require.NoError(t, os.WriteFile(file+".empty", nil, 0o600))
		_, out, errs := execute(t, append([]string{"fires", "settle", "--file", file}, args...)...)
		assert.Contains(t, out+errs, want, "a flag goes before the file")
	}
}

func TestHistory_RefusesWrongFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	jobs := func(history string) string {
		path := filepath.Join(t.TempDir(), "jobs.yaml")
		require.NoError(t, os.WriteFile(path, []byte(history+"\njobs: {a: {every: 1m, command: [/no/such/program]}}\n"), 0o600))
		return path
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"fires", "j", "-n", "a"}, exit.Usage, "no database is named: pass --history or --file"},
		{[]string{"fires", "j", "--history", "sqlite:" + file}, exit.Usage, "no namespace is named"},
		{[]string{"fires", "j", "-n", "a", "--history", "oracle://kim:secret@a"}, exit.Usage, "history oracle://kim:xxxxx@a: the URL must begin with postgres://"},
		{[]string{"fires", "j", "-n", "a", "--history", "sqlite:" + file + "2"}, exit.Usage, "no such file"},
		{[]string{"fires", "j", "-n", "a", "--history", "sqlite:" + file}, exit.Failed, "no such table"},
		{[]string{"fires", "j", "-n", "a", "--history", "mysql://kim@host"}, exit.Usage, "not mysql://USER:PASSWORD@HOST[:PORT]/DATABASE"},
		{[]string{"fires", "j", "-n", "a", "--history", "postgres://kim:secret@host/db"}, exit.Usage, "--history has a password, which other users of the host can read: set ROTA_HISTORY"},
		{[]string{"fires", "j", "-n", "a", "--history", "postgres://kim@127.0.0.1:1/db?sslmode=disable"}, exit.Failed, "history postgres://kim@127.0.0.1:1/db: "},
		{[]string{"fires", "j", "-n", "a", "--history", "mysql://kim@127.0.0.1:1/db?timeout=1s"}, exit.Failed, "history mysql://kim@127.0.0.1:1/db: "},
		{[]string{"fires", "j", "--file", file + "2"}, exit.Usage, "no such file"},
		{[]string{"fires", "j", "--file", file}, exit.Usage, "the file is empty"},
		{[]string{"fires", "j", "--file", jobs("")}, exit.Usage, "has no key history"},
		{[]string{"runs", "j", "--file", jobs("history: jsonl:runs")}, exit.Usage, "/runs, which this command does not read"},
		{[]string{"runs", "j", "--file", jobs("history: {url: 'mysql://a/b', password_env: P}")}, exit.Usage, "credentials of the history: the environment variable P is not set"},
		{[]string{"fires", "j", "--since", "soon"}, exit.Usage, `--since "soon" is not a duration`},
		{[]string{"fires", "j", "--since", "-1h"}, exit.Usage, `--since "-1h" is not a duration`},
		{[]string{"runs", "j", "--fire", "noon"}, exit.Usage, `--fire is "noon", neither RFC 3339 nor a time of day as 14:00`},
		{[]string{"logs", "j", "--since", "soon"}, exit.Usage, `--since "soon" is not a duration`},
		{[]string{"logs", "j", "--fire", "noon", "--follow"}, exit.Usage, `--fire is "noon", neither RFC 3339 nor a time of day as 14:00`},
		{[]string{"logs", "j", "-f", "-n", "a", "--history", "sqlite:" + file}, exit.Failed, "no such table"},
		{[]string{"runs", "j", "--shard", "x"}, exit.Usage, `invalid argument "x" for "--shard" flag`},
		{[]string{"runs", "j", "--failed", "--slowest"}, exit.Usage, "none of the others can be"},
	} {
		code, out, errs := execute(t, c.args...)
		assert.Equal(t, c.code, code, c.args)
		assert.Contains(t, errs, c.want)
		assert.NotContains(t, errs, "secret")
		assert.Empty(t, out)
	}
}
