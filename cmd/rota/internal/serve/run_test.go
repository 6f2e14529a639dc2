package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

func TestRun_RunsTheExample(t *testing.T) {
	content, err := os.ReadFile("../../../../examples/jobs.yaml")
	require.NoError(t, err)
	inBubble(t, writeFile(t, string(content)), func(t *testing.T, p *process) {
		begin := time.Now()
		time.Sleep(2*time.Minute + 2*time.Second)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))

		assert.InDelta(t, 24, len(p.lines(t, "clock")), 2)
		greeted := p.lines(t, "greet")
		assert.InDelta(t, 36, len(greeted), 4)
		for i, region := range []string{"Beijing", "Shanghai", "Guangzhou"} {
			assert.Contains(t, greeted, fmt.Sprintf("good day, %s: shard %d of 3 for %s", region, i, begin.Add(time.Minute).UTC().Format(time.RFC3339)))
		}
		slices.Sort(greeted)
		assert.Len(t, slices.Compact(slices.Clone(greeted)), len(greeted), "each shard ran once for each fire")
		assert.Equal(t, []string{
			"a minute has begun in Shanghai: " + begin.Add(time.Minute).UTC().Format(time.RFC3339),
			"a minute has begun in Shanghai: " + begin.Add(2*time.Minute).UTC().Format(time.RFC3339),
		}, p.lines(t, "report"))
		for _, r := range p.records(t) {
			assert.Contains(t, []any{"DEBUG", "INFO"}, r["level"], r)
		}
	})
}

const hello = "jobs:\n  hello: {every: 10s, command: [/bin/echo, hello]}\n"

func TestRun_RefusesToStart(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		change  func(*process)
		code    int
		want    string
	}{
		"as root":            {hello, func(p *process) { p.uid, p.allowRoot = 0, false }, exit.Usage, "refuses to do so as root"},
		"a bad file":         {"jobs: 1\n", func(*process) {}, exit.Usage, "jobs.yaml:1:7: jobs: is the number 1, not a map from names to jobs"},
		"no file":            {hello, func(p *process) { p.file += "x" }, exit.Usage, "no such file"},
		"a directory":        {hello, func(p *process) { p.file = os.TempDir() }, exit.Usage, "is not a regular file"},
		"group may write":    {hello, func(p *process) { require.NoError(t, os.Chmod(p.file, 0o620)) }, exit.Usage, "group or others may write it (-rw--w----)"},
		"others may write":   {hello, func(p *process) { require.NoError(t, os.Chmod(p.file, 0o602)) }, exit.Usage, "remedy: chmod go-w"},
		"another's file":     {hello, func(p *process) { p.uid = 12345; require.NoError(t, os.Chown(p.file, 54321, -1)) }, exit.Usage, "user 54321 owns it"},
		"all may replace it": {hello, func(p *process) { p.file = inOpenDirectory(t, 0o777) }, exit.Usage, "all users may write the directory"},
		"also by a link": {hello, func(p *process) {
			link := filepath.Join(t.TempDir(), "link.yaml")
			require.NoError(t, os.Symlink(inOpenDirectory(t, 0o777), link))
			p.file = link
		}, exit.Usage, "all users may write the directory"},
		"no port":            {hello, func(p *process) { p.listen = "nowhere" }, exit.Usage, `--listen is "nowhere", not HOST:PORT or :PORT`},
		"a bad port":         {hello, func(p *process) { p.listen = ":80x" }, exit.Usage, `--listen is ":80x"`},
		"a bad pprof port":   {hello, func(p *process) { p.pprof = "127.0.0.1:80x" }, exit.Usage, `--pprof is "127.0.0.1:80x"`},
		"pprof for all":      {hello, func(p *process) { p.pprof = ":6060" }, exit.Usage, "--pprof-remote"},
		"pprof for others":   {hello, func(p *process) { p.pprof = "192.0.2.1:6060" }, exit.Usage, "--pprof-remote"},
		"a foreign address":  {hello, func(p *process) { p.listen = "192.0.2.1:8080" }, exit.Failed, "--listen: "},
		"a bad registry":     {hello, func(p *process) { p.registry = "redis://a" }, exit.Usage, `the registry is "redis://a", not memory, etcd://HOST:PORT, zk://HOST:PORT or postgres://HOST:PORT/DATABASE`},
		"a password in it":   {hello, func(p *process) { p.registry = "etcd://u:secret@a:1" }, exit.Usage, "the registry has a user or password"},
		"registry of env":    {hello, func(p *process) { p.env = append(p.env, "ROTA_REGISTRY=redis://b") }, exit.Usage, `"redis://b"`},
		"too few workers":    {hello, func(p *process) { p.workers = -1 }, exit.Usage, "Workers is -1"},
		"a bad label":        {hello, func(p *process) { p.labels = map[string]string{"": "a"} }, exit.Usage, "label"},
		"the label of rota":  {hello, func(p *process) { p.labels = map[string]string{fileLabel: "a"} }, exit.Usage, `"rota.file" is set by rota run`},
		"no password":        {"registry: {url: \"etcd://a:1\", user_env: U, password_env: P}\n" + hello, func(p *process) { p.env = []string{"U=u"} }, exit.Usage, "credentials of the registry: the environment variable P is not set"},
		"no authority":       {"registry: {url: \"etcd://a:1\", tls: {ca_file: /no/such/file}}\n" + hello, func(*process) {}, exit.Usage, "credentials of the registry: read ca_file: open /no/such/file"},
		"authority of env":   {"registry: etcd://a:1\n" + hello, func(p *process) { p.env = []string{"ROTA_TLS_CA_FILE=/no/such/file"} }, exit.Usage, "open /no/such/file"},
		"password file, env": {"registry: etcd://a:1\n" + hello, func(p *process) { p.env = []string{"ROTA_USER=u", "ROTA_PASSWORD_FILE=/no/such/file"} }, exit.Usage, "open /no/such/file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(writeFile(t, c.content))
			c.change(p)
			err := run(t.Context(), p.options)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, c.code, exit.CodeOf(err))
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

// A flag goes before the environment, which goes before the file.
func TestTarget_HasAnOrder(t *testing.T) {
	p := newProcess(writeFile(t, "registry: {url: \"etcd://file:1\", user_env: U, password_env: P, tls: {ca_file: ca.pem}}\nnamespace: fn\ngroup: fg\n"+hello))
	f, err := p.load()
	require.NoError(t, err)
	of := func() target {
		t.Helper()
		got, err := p.targetOf(f)
		require.NoError(t, err)
		return got
	}
	got := of()
	assert.Equal(t, []string{"etcd://file:1", "fn", "fg"}, []string{got.url, got.namespace, got.group})
	assert.Equal(t, "U P ca.pem", got.credentials.userEnv+" "+got.credentials.passwordEnv+" "+got.credentials.tls.CAFile)

	p.env = []string{"ROTA_REGISTRY=zk://env:1", "ROTA_NAMESPACE=en", "ROTA_GROUP=eg", "ROTA_USER=eu", "ROTA_PASSWORD=ep"}
	got = of()
	assert.Equal(t, []string{"zk://env:1", "en", "eg"}, []string{got.url, got.namespace, got.group})
	assert.Equal(t, credentials{user: "eu", passwordEnv: "ROTA_PASSWORD"}, got.credentials, "credentials of the file are not sent elsewhere")

	p.registry, p.namespace, p.group = "memory", "n", "g"
	got = of()
	assert.Equal(t, []string{"memory", "n", "g"}, []string{got.url, got.namespace, got.group})
}

func TestRun_WarnsIfTheEnvironmentOverrulesTheFile(t *testing.T) {
	const text = "namespace is ops by ROTA_NAMESPACE; the file has billing"
	path := writeFile(t, "namespace: billing\ngroup: day\n"+hello)
	for name, c := range map[string]struct {
		change func(*process)
		want   []any
	}{
		"another value":  {func(p *process) { p.env = append(p.env, "ROTA_NAMESPACE=ops") }, []any{text}},
		"the same value": {func(p *process) { p.env = append(p.env, "ROTA_NAMESPACE=billing", "ROTA_GROUP=day") }, nil},
		"a flag":         {func(p *process) { p.env, p.namespace = append(p.env, "ROTA_NAMESPACE=ops"), "test" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(path)
				c.change(p)
				p.start(t.Context())
				time.Sleep(time.Second)
				p.signals <- syscall.SIGTERM
				require.NoError(t, p.await(t))
				var got []any
				for _, r := range p.find(t, "the environment overrules the file") {
					got = append(got, r["setting"])
				}
				assert.Equal(t, c.want, got)
			})
		})
	}
	t.Setenv("ROTA_NAMESPACE", "ops")
	out, err := execute(t, path)
	require.NoError(t, err)
	assert.Contains(t, out, "warning: "+text)
}

func TestRun_FlagOverridesTheRevision(t *testing.T) {
	p := newProcess(writeFile(t, "revision: 3\njobs:\n  a: {every: 1m, command: [/bin/echo]}\n  b: {every: 1m, command: [/bin/echo], revision: 9}\n"))
	p.revision = 5
	f, err := p.load()
	require.NoError(t, err)
	assert.Equal(t, []int{5, 5, 9}, []int{f.Revision, f.Jobs[0].Revision, f.Jobs[1].Revision})
}

func TestRun_ReloadsTheWholeFile(t *testing.T) {
	path := writeFile(t, `jobs:
  stays: {every: 10s, command: [/bin/echo, stays]}
  changes: {every: 10s, command: [/bin/echo, before]}
  goes: {every: 10s, command: [/bin/echo, goes]}
`)
	inBubble(t, path, func(t *testing.T, p *process) {
		time.Sleep(31 * time.Second)
		rewrite(t, path, `jobs:
  stays: {every: 10s, command: [/bin/echo, stays]}
  changes: {every: 5s, command: [/bin/echo, after]}
  comes: {every: 10s, command: [/bin/echo, comes]}
`)
		p.signals <- syscall.SIGHUP
		time.Sleep(30 * time.Second)
		reloaded := p.find(t, "file reloaded")
		require.Len(t, reloaded, 1)
		assert.Equal(t, []any{"comes", "changes", "goes"}, []any{reloaded[0]["added"], reloaded[0]["changed"], reloaded[0]["removed"]})
		stays, after, gone := len(p.lines(t, "stays")), len(p.lines(t, "changes")), len(p.lines(t, "goes"))
		time.Sleep(time.Minute)
		assert.Len(t, p.lines(t, "stays"), stays+6)
		assert.Len(t, p.lines(t, "changes"), after+12)
		assert.Len(t, p.lines(t, "goes"), gone)
		assert.Contains(t, p.lines(t, "changes"), "before")
		assert.Equal(t, "after", p.lines(t, "changes")[after])
		assert.NotEmpty(t, p.lines(t, "comes"))

		// A job that comes back with another schedule runs again.
		rewrite(t, path, "jobs:\n  goes: {every: 20s, command: [/bin/echo, goes]}\n")
		p.signals <- syscall.SIGHUP
		time.Sleep(10 * time.Second)
		back := len(p.lines(t, "goes"))
		time.Sleep(2 * time.Minute)
		assert.Len(t, p.lines(t, "goes"), back+6)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

func TestRun_KeepsItsJobsIfTheNewFileHasAProblem(t *testing.T) {
	path := writeFile(t, hello)
	inBubble(t, path, func(t *testing.T, p *process) {
		time.Sleep(16 * time.Second)
		for _, c := range []struct{ content, want string }{
			{"jobs:\n  hello: {every: 1s, command: [/bin/echo, changed]}\n  bad: {every: 1}\n", "jobs.yaml:3:16: jobs.bad.every: is the number 1, without a unit"},
			{"namespace: other\n" + hello, "namespace and group cannot change while the process runs"},
			{"registry: etcd://a:1\n" + hello, "registry, credentials"},
			{"", "the file is empty"},
		} {
			rewrite(t, path, c.content)
			p.signals <- syscall.SIGHUP
			synctest.Wait()
			time.Sleep(time.Second)
			errs := p.find(t, "file not reloaded: the jobs stay as they are")
			require.NotEmpty(t, errs)
			assert.Contains(t, errs[len(errs)-1]["error"], c.want)
			assert.Equal(t, "ERROR", errs[len(errs)-1]["level"])
		}
		require.NoError(t, os.Chmod(path, 0o666))
		p.signals <- syscall.SIGHUP
		time.Sleep(time.Second)
		errs := p.find(t, "file not reloaded: the jobs stay as they are")
		assert.Contains(t, errs[len(errs)-1]["error"], "group or others may write it")

		before := len(p.lines(t, "hello"))
		time.Sleep(time.Minute)
		assert.Equal(t, slices.Repeat([]string{"hello"}, before+6), p.lines(t, "hello"))
		assert.Empty(t, p.find(t, "file reloaded"))
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

func TestRun_DrainsAtTheFirstSignal(t *testing.T) {
	path := writeFile(t, "jobs:\n  short: {every: 10s, shell: 'echo begun; echo ended'}\n")
	for name, stop := range map[string]func(p *process, cancel context.CancelFunc){
		"SIGTERM":        func(p *process, _ context.CancelFunc) { p.signals <- syscall.SIGTERM },
		"SIGINT":         func(p *process, _ context.CancelFunc) { p.signals <- syscall.SIGINT },
		"end of context": func(_ *process, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := newProcess(path)
				p.start(ctx)
				time.Sleep(21 * time.Second)
				stop(p, cancel)
				require.NoError(t, p.await(t))
				lines := p.lines(t, "short")
				assert.NotEmpty(t, lines)
				assert.Equal(t, strings.Count(strings.Join(lines, " "), "begun"), strings.Count(strings.Join(lines, " "), "ended"))
				assert.Len(t, p.find(t, "left the fleet"), 1)
				assert.Empty(t, p.exits)
			})
		})
	}
}

func TestRun_EndsAtOnceAtTheSecondSignal(t *testing.T) {
	inBubble(t, writeFile(t, "jobs:\n  slow: {every: 10s, http: {url: \"http://192.0.2.1/\", timeout: 1h}}\n"), func(t *testing.T, p *process) {
		p.signals <- syscall.SIGTERM
		p.signals <- syscall.SIGTERM
		err := p.await(t)
		assert.Equal(t, []int{128 + 15}, p.exits)
		assert.Equal(t, 128+15, exit.CodeOf(err))
		assert.Len(t, p.find(t, "second signal: ending at once; other instances repeat the runs"), 1)
		time.Sleep(time.Hour) // the executor leaves
	})
}

func TestRun_AJobFollowsAnother(t *testing.T) {
	inBubble(t, writeFile(t, `jobs:
  parent: {every: 10s, shards: 3, command: [/bin/echo, "{{.FireTime}}"]}
  child: {after: parent, command: [/bin/echo, "{{.FireTime}}"]}
  alarm: {after: {jobs: parent, on: failure}, command: [/bin/echo, "{{.FireTime}}"]}
`), func(t *testing.T, p *process) {
		time.Sleep(65 * time.Second)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
		parent := p.lines(t, "parent")
		slices.Sort(parent)
		assert.Greater(t, len(parent), 9)
		assert.Equal(t, slices.Compact(parent), p.lines(t, "child"), "once for each fire of all three shards")
		assert.Empty(t, p.lines(t, "alarm"))
	})
}
