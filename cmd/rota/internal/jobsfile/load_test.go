package jobsfile

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/schedule"
)

var update = flag.Bool("update", false, "write the expected problems and documents")

// testHost has programs, and no secrets but those of the environment.
func testHost() Host {
	return Host{ReadFile: os.ReadFile, LookupEnv: os.LookupEnv, Environ: []string{"PATH=/bin", "ROTA_PASSWORD=p"}, Programs: true}
}

// want is the comment at the end of a bad file that begins the expected problems.
const want = "# Problems:\n"

// splitBad returns a bad file without the expected problems, and these.
func splitBad(t *testing.T, path string) (content []byte, problems string) {
	t.Helper()
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	content, after, _ := bytes.Cut(whole, []byte(want))
	for line := range strings.Lines(string(after)) {
		problems += strings.TrimPrefix(line, "# ")
	}
	return content, problems
}

func badFiles(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(all), 40)
	return all
}

func TestLoad_ReportsAllProblemsOfBadFiles(t *testing.T) {
	for _, path := range badFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			content, expected := splitBad(t, path)
			f, err := Load("jobs.yaml", content, testHost())
			require.Error(t, err)
			assert.Nil(t, f)
			var problems *Problems
			require.ErrorAs(t, err, &problems)
			got := err.Error() + "\n"
			if *update {
				comment := want
				for line := range strings.Lines(got) {
					comment += "# " + line
				}
				require.NoError(t, os.WriteFile(path, append(content, comment...), 0o644))
				return
			}
			assert.Equal(t, expected, got)
		})
	}
}

func TestLoad_ReportsFilesThatAreNoText(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"empty":        {"", "f:1:1: the file is empty; it needs the key jobs"},
		"only a dash":  {"---\n", "f:1:1: the file is empty; it needs the key jobs"},
		"not UTF-8":    {"jobs:\n  a\xff: 1\n", "f:2:4: the file is not YAML: invalid leading UTF-8 octet (value: 255)"},
		"a NUL byte":   {"jobs:\n  \x00: 1\n", "f:2:3: the file is not YAML: control characters are not allowed"},
		"too large":    {"# " + strings.Repeat("x", MaxBytes), "f:1:1: the file has more than 1048576 bytes"},
		"many aliases": {"a: &a [x]\nb: &b [*a, *a]\n", "f:1:4: the anchor &a is not allowed: there are no aliases in this file"},
		"deep nesting": {"a: " + strings.Repeat("[", 100_000), "f:1:"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("f", []byte(c.content), testHost())
			require.Error(t, err)
			first, _, _ := strings.Cut(err.Error(), "\n")
			assert.True(t, strings.HasPrefix(first, c.want), first)
		})
	}
}

func loadGood(t *testing.T, name string, host Host) *File {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/good", name))
	require.NoError(t, err)
	f, err := Load(name, content, host)
	require.NoError(t, err)
	return f
}

func (f *File) job(t *testing.T, name string) Job {
	t.Helper()
	i := slices.IndexFunc(f.Jobs, func(j Job) bool { return j.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return f.Jobs[i]
}

func TestLoad_FillsEachFieldOfAJob(t *testing.T) {
	f := loadGood(t, "all-keys.yaml", Host{})
	assert.Equal(t, 7, f.Revision)
	assert.True(t, f.HasRevision)
	assert.Equal(t, "billing/night", f.Namespace+"/"+f.Group)
	assert.Equal(t, Registry{
		URL: "etcd://e1:2379,e2:2379/prod", UserEnv: "ROTA_TEST_USER", PasswordFile: "/run/secrets/password",
		TLS: TLSFiles{true, "/run/secrets/ca.pem", "/run/secrets/cert.pem", "/run/secrets/key.pem", "etcd.internal"},
	}, f.Registry)
	assert.Equal(t, History{
		URL: "postgres://db1.internal,db2.internal:5433/history?sslmode=verify-full", UserEnv: "ROTA_TEST_DB_USER", PasswordEnv: "ROTA_TEST_DB_PASSWORD",
		TLS: TLSFiles{Enabled: true, CAFile: "/run/secrets/ca.pem", ServerName: "db.internal"}, Keep: history.KeepFires, Retention: -1, RowsPerJob: -1,
		Queue: 2000, TablesExist: true, Logs: 1, LogRetention: 48 * time.Hour, LogSize: 128 << 10,
	}, f.History)
	whole := reflect.ValueOf(f.History)
	for i := range whole.NumField() {
		if name := whole.Type().Field(i).Name; !strings.HasSuffix(name, "File") { // excluded by the environment
			assert.False(t, whole.Field(i).IsZero(), name)
		}
	}

	assert.Equal(t, map[string]int{"db": 8, "held": 0}, f.Pools)

	settle := f.job(t, "settle")
	assert.True(t, settle.OwnRevision)
	assert.True(t, settle.SecretLog)
	assert.Equal(t, "/bin/echo --region {{.ShardParam}} --fence {{.Fence}} 1.50 no", settle.Work)
	assert.Equal(t, &handler.Cmd{
		Path: "/bin/echo", Args: []string{"--region", "{{.ShardParam}}", "--fence", "{{.Fence}}", "1.50", "no"},
		Dir: "/", Env: []string{"DIR=/backup", "HOME=", "LEVEL=debug", "TOKEN="}, KillAfter: -1, OK: []int{3}, Permanent: []int{64, 78}, LogLimit: 64 << 10,
	}, unparsed(settle.Handler))
	settle.Handler = nil
	assert.Equal(t, settle.Digest[:8], settle.Local)
	from, until := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2098, 12, 31, 16, 0, 0, 0, time.UTC)
	assert.Equal(t, executor.Job{
		Name: "settle", Description: "settles each region at night",
		Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai").From(from).Until(until).Spread(30 * time.Second),
		Shards:   3, ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"}, Param: "5", Revision: 9,
		Strategy: "rotate", RunOn: map[string]string{"zone": "a", "gpu": "true"}, Timeout: time.Hour,
		OnCrash: executor.CountAsFailed, OnMisfire: executor.RunAll(5), OnOverlap: executor.CancelRunning, CatchupWindow: 6 * time.Hour,
		StartPaused: true, MaxAttempts: 5, Retry: executor.Retry{Max: 4}, MaxRunning: 4, Pool: "db", Local: settle.Local,
	}, settle.Job)

	fields := reflect.ValueOf(settle.Job)
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Name
		if !slices.Contains([]string{"Handler", "Middleware", "Tracking"}, name) { // Tracking is that of export
			assert.False(t, fields.Field(i).IsZero(), name)
		}
		assert.Contains(t, fieldKeys, name, "a key for the field, or an empty one")
	}

	export := f.job(t, "export")
	assert.Equal(t, schedule.Quartz("0 0 3 L * ?").In("UTC"), export.Schedule)
	assert.Equal(t, executor.Retry{Max: -1}, export.Retry)
	assert.Equal(t, executor.TrackClaims, loadGood(t, "claims.yaml", Host{}).job(t, "ping").Tracking)
	assert.Equal(t, executor.SkipOverlapping, export.OnOverlap)
	assert.Equal(t, executor.SkipMissed, export.OnMisfire)
	assert.Equal(t, 7, export.Revision)
	assert.Equal(t, &handler.Cmd{
		Path: "/bin/sh", Script: `date > "$DIR/$ROTA_FIRE"`, Env: []string{"DIR=/backup", "LEVEL=info"}, KillAfter: 2 * time.Second, LogLimit: math.MaxInt,
	}, unparsed(export.Handler))

	assert.Equal(t, -1, f.job(t, "silent").Handler.(*handler.Cmd).LogLimit)

	for name, schedule := range map[string]schedule.Schedule{
		"poll-tenants": schedule.Every(time.Minute),
		"once":         schedule.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
		"twice":        schedule.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)),
		"again":        schedule.FixedDelay(30 * time.Second),
		"daemon":       schedule.Always(),
		"silent":       schedule.OnTrigger(),
		"by-hand":      schedule.OnTrigger(),
		"next":         schedule.AfterJob("settle"),
		"last":         schedule.AfterJob("export", "next").OnEnd(),
		"alarm":        schedule.AfterJob("job of another process").OnFailure(),
		"zoned":        schedule.Cron("0 3 * * *").In("Europe/Berlin"),
	} {
		assert.Equal(t, schedule, f.job(t, name).Schedule, name)
	}
	defaults := executor.Retry{Max: 2, Initial: 30 * time.Second, MaxInterval: 10 * time.Minute, Factor: 3, Jitter: -1}
	assert.Equal(t, defaults, f.job(t, "again").Retry)
	assert.Equal(t, executor.RunOnce, f.job(t, "again").OnMisfire, "a default that does not apply")
	assert.Equal(t, map[int]string{0: "a", 1: "b"}, f.job(t, "poll-tenants").ShardParams)
	assert.Equal(t, "PUT https://tenants.internal/poll/{{.Shard}}?at={{.FireTime}}", f.job(t, "poll-tenants").Work)
}

// unparsed returns the settings of a command, without what Check has derived of them.
func unparsed(h executor.Handler) *handler.Cmd {
	c := h.(*handler.Cmd)
	return &handler.Cmd{Path: c.Path, Args: c.Args, Script: c.Script, Dir: c.Dir, Env: c.Env, KillAfter: c.KillAfter, OK: c.OK, Permanent: c.Permanent, LogLimit: c.LogLimit}
}

func TestLoad_KeepsCredentialsFromPrograms(t *testing.T) {
	host := testHost()
	host.Environ = append(host.Environ, "STORE_USER=u", "STORE_PASSWORD=p", "DB_USER=u", "DB_PASSWORD=p", "OTHER=o")
	f, err := Load("f", []byte(`registry: {url: "etcd://a:1", user_env: STORE_USER, password_env: STORE_PASSWORD}
history: {url: "mysql://a/b", user_env: DB_USER, password_env: DB_PASSWORD}
jobs:
  a: {every: 1m, command: [/bin/true]}
`), host)
	require.NoError(t, err)
	assert.Equal(t, []string{"PATH=/bin", "OTHER=o"}, f.Jobs[0].Handler.(*handler.Cmd).Env)
}

// A job that cannot run on this instance may name programs and files that only others have.
func TestLoad_LooksUpNothingForJobsOfOtherInstances(t *testing.T) {
	file := []byte(`jobs:
  a: {every: 1m, command: [/no/such/program], run_on: {gpu: yes}, env: {A: {from_file: /no/such/file}}}
  b: {every: 1m, http: {url: "http://a/", header: {A: {from_file: /no/such/file}}, tls: {ca_file: /no/such/file}}, run_on: {gpu: yes}}
`)
	for name, c := range map[string]struct {
		change func(*Host)
		sound  bool
	}{
		"without the label":      {func(h *Host) { h.Labels = map[string]string{"zone": "a"} }, true},
		"with another value":     {func(h *Host) { h.Labels = map[string]string{"gpu": "no"} }, true},
		"with the label":         {func(h *Host) { h.Labels = map[string]string{"gpu": "yes"} }, false},
		"on any instance":        {func(h *Host) {}, false},
		"without any look-up":    {func(h *Host) { *h = Host{} }, true},
		"programs are no matter": {func(h *Host) { h.Programs = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			host := testHost()
			c.change(&host)
			_, err := Load("f", file, host)
			assert.Equal(t, c.sound, err == nil, err)
		})
	}
}

func TestDigest_ChangesWithTheLocalPartOnly(t *testing.T) {
	digest := func(job string) string {
		t.Helper()
		f, err := Load("f", []byte("jobs:\n  a: "+job+"\n"), Host{})
		require.NoError(t, err)
		assert.Len(t, f.Digest(), 12)
		return f.Jobs[0].Digest
	}
	of := digest(`{every: 1m, command: [/bin/echo, a]}`)
	assert.Equal(t, of, digest(`{every: 2m, shards: 4, retry: 2, command: [/bin/echo, a]}`))
	for _, other := range []string{
		`{every: 1m, command: [/bin/echo, b]}`, `{every: 1m, command: [/bin/echo a]}`, `{every: 1m, shell: /bin/echo a}`,
		`{every: 1m, command: [/bin/echo, a], env: {A: b}}`, `{every: 1m, command: [/bin/echo, a], dir: /}`,
		`{every: 1m, command: [/bin/echo, a], env: {A: {from_file: b}}}`, `{every: 1m, http: {url: "http://a/"}}`,
	} {
		assert.NotEqual(t, of, digest(other), other)
	}
}

func TestProblems_AreSortedWithoutDuplicates(t *testing.T) {
	a, b, c := Problem{1, 9, "a", "r"}, Problem{2, 1, "b", "r"}, Problem{10, 1, "c", "r"}
	assert.Equal(t, []Problem{a, b, c}, sortProblems([]Problem{c, b, a, b}))
}

func TestSuggest(t *testing.T) {
	names := []string{"schedule", "every", "shards", "param"}
	for word, want := range map[string]string{"shedule": "schedule", "Schedule": "schedule", "evry": "every", "shard": "shards", "params": "param", "colour": "", "x": ""} {
		assert.Equal(t, want, suggest(word, names), word)
	}
}

func FuzzLoad(f *testing.F) {
	for _, glob := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml"} {
		paths, _ := filepath.Glob(glob)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := Load("f", content, Host{})
		var problems *Problems
		switch {
		case err == nil:
			require.NotEmpty(t, len(file.Jobs)+len(file.Kinds))
			for _, j := range file.Jobs {
				require.NotNil(t, j.Handler, j.Name)
			}
		case !errors.As(err, &problems):
			t.Fatal(err)
		default:
			for _, p := range problems.All {
				require.Positive(t, p.Line, p)
				require.Positive(t, p.Column, p)
				require.NotEmpty(t, p.Rule)
			}
		}
	})
}

func TestRunVariables_AreThoseOfHandlers(t *testing.T) {
	h := handler.Shell("env; exit 1")
	h.Env, h.LogLimit = []string{}, -1
	var failed *handler.ExitError
	require.ErrorAs(t, h.Handle(t.Context(), &executor.Run{RunInfo: executor.RunInfo{Job: "a"}}), &failed)
	var names []string
	for line := range strings.Lines(failed.Tail) {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "ROTA_") {
			names = append(names, name)
		}
	}
	assert.ElementsMatch(t, runVariables, names)
}
