//go:build unix

package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
)

const (
	patience = 60 * time.Second // for a busy machine
	tick     = 10 * time.Millisecond
)

// command is a process of this command, whose log is JSON.
type command struct {
	*child.Process
	*journal
}

// startCommand starts the command. The race detector's delay at the exit would hold each test up.
func startCommand(t *testing.T, args ...string) *command {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return startProgram(t, exec.Command(program, args...))
}

// startShell starts the command after a script in the same process.
func startShell(t *testing.T, script string, args ...string) *command {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return startProgram(t, exec.Command("/bin/sh", slices.Concat([]string{"-c", script + ` && exec "$0" "$@"`, program}, args)...))
}

func startProgram(t *testing.T, cmd *exec.Cmd) *command {
	t.Helper()
	c := &command{journal: &journal{}}
	cmd.Env = append(os.Environ(), beCommand+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = c.journal, c.journal
	process, err := child.Start(cmd)
	require.NoError(t, err)
	c.Process = process
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() {
			t.Logf("log of %v:\n%s", cmd.Args, c.text())
		}
	})
	return c
}

// startRun starts "rota run".
func startRun(t *testing.T, args ...string) *command {
	t.Helper()
	return startCommand(t, append([]string{"run", "--allow-root", "--log-format", "json"}, args...)...)
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// awaitText waits for a text in the output.
func (c *command) awaitText(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(c.text(), text) }, patience, tick, "%s is not in:\n%s", text, c.text())
}

// exitCode waits for the end of the process.
func (c *command) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	if c.Err() == nil {
		return 0
	}
	var failed *exec.ExitError
	require.ErrorAs(t, c.Err(), &failed)
	return failed.ExitCode()
}

func (c *command) send(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(c.Pid(), s))
}

func TestProcess_ReloadsAndDrains(t *testing.T) {
	path := writeFile(t, `jobs:
  tick: {every: 1s, command: [/bin/echo, "of the first file"]}
  long: {every: 1s, shell: "echo begun; sleep 1; echo finished"}
`)
	c := startRun(t, path, "--listen", "127.0.0.1:0", "--pprof", "127.0.0.1:0")
	c.awaitText(t, `"of":"profiles"`)
	fetch := func(path string) (int, string) {
		t.Helper()
		port := 0
		if strings.HasPrefix(path, "/debug/") {
			port = 1
		}
		address := c.find(t, "serving a port")[port]["address"].(string)
		resp, err := http.Get("http://" + address + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	code, _ := fetch("/livez")
	assert.Equal(t, 200, code)
	c.awaitText(t, `"line":"of the first file"`)
	code, body := fetch("/readyz")
	assert.Equal(t, 200, code, body)
	_, body = fetch("/metrics")
	assert.Contains(t, body, `rota_runs_total{job_name="tick",outcome="ok"`)
	code, _ = fetch("/debug/pprof/heap")
	assert.Equal(t, 200, code)

	rewrite(t, path, "jobs:\n  tick: {every: 1}\n")
	c.send(t, syscall.SIGHUP)
	c.awaitText(t, "file not reloaded: the jobs stay as they are")
	rewrite(t, path, `jobs:
  tick: {every: 1s, command: [/bin/echo, "of the second file"]}
  long: {every: 1s, shell: "echo begun; sleep 1; echo finished"}
`)
	c.send(t, syscall.SIGHUP)
	c.awaitText(t, `"line":"of the second file"`)

	begun := len(c.lines(t, "long"))
	require.Eventually(t, func() bool {
		lines := c.lines(t, "long")
		return len(lines) > begun && lines[len(lines)-1] == "begun"
	}, patience, tick)
	c.send(t, syscall.SIGTERM)
	assert.Equal(t, 0, c.exitCode(t))
	lines := c.lines(t, "long")
	assert.Equal(t, "finished", lines[len(lines)-1], "the run could finish")
	assert.NotEmpty(t, c.find(t, "left the fleet"))
}

// A client that sends requests without their bodies holds fewer descriptors than the process has.
func TestProcess_RunsJobsBesideASlowClientOfItsPort(t *testing.T) {
	path := writeFile(t, "jobs:\n  tick: {every: 1s, command: [/bin/echo, hello]}\n")
	c := startShell(t, "ulimit -n 160", "run", "--allow-root", "--log-format", "json", path, "--listen", "127.0.0.1:0")
	c.awaitText(t, `"of":"health and metrics"`)
	address := c.find(t, "serving a port")[0]["address"].(string)
	for range 400 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
		if err != nil {
			require.ErrorIs(t, err, syscall.ECONNRESET, "the connection was closed for newer ones")
		}
	}
	client := http.Client{Timeout: patience}
	resp, err := client.Get("http://" + address + "/livez")
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 200, resp.StatusCode)
	begun := len(c.lines(t, "tick"))
	require.Eventually(t, func() bool { return len(c.lines(t, "tick")) > begun+1 }, patience, tick)
	assert.Empty(t, c.find(t, "run failed"))
	assert.NotContains(t, c.text(), "too many open files")
}

func TestProcess_EndsAtOnceAtTheSecondSignal(t *testing.T) {
	c := startRun(t, writeFile(t, "jobs:\n  stuck: {every: 1s, shell: \"echo $$; exec sleep 600\"}\n"))
	require.Eventually(t, func() bool { return len(c.lines(t, "stuck")) > 0 }, patience, tick)
	pid := c.lines(t, "stuck")[0]
	c.send(t, syscall.SIGINT)
	c.awaitText(t, "draining")
	c.send(t, syscall.SIGTERM)
	assert.Equal(t, 128+15, c.exitCode(t))
	var n int
	_, err := fmt.Sscan(pid, &n)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(n, 0) != nil || isZombie(n) }, patience, tick, "the program ends with the process")
}

// A database is down when the process starts, and answers later.
func TestProcess_RecordsHistoryOnDatabases(t *testing.T) {
	for name, c := range map[string]struct {
		start func() (*dbserver.Server, error)
		url   string
	}{
		"PostgreSQL": {dbserver.StartPostgres, "postgres://%s/runs?sslmode=disable"},
		"MariaDB":    {dbserver.StartMariaDB, "mysql://%s/runs"},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := c.start()
			require.NoError(t, err)
			t.Cleanup(server.Remove)
			require.NoError(t, server.CreateDatabase("runs"))
			server.Stop()
			url := fmt.Sprintf(c.url, server.Addr())
			t.Setenv("HISTORY_USER", map[string]string{"PostgreSQL": "rota", "MariaDB": "root"}[name])
			p := startRun(t, writeFile(t, "history: {url: "+url+", user_env: HISTORY_USER, keep: all}\n"+
				"namespace: billing\njobs:\n  sad: {every: 1s, shell: 'echo \"out of paper${HISTORY_USER-}\"; exit 3'}\n"), "--instance", "web-1")
			p.awaitText(t, "history not ready: jobs run, and records wait")
			require.Eventually(t, func() bool { return len(p.lines(t, "sad")) > 2 }, patience, tick, "the jobs run")
			require.NoError(t, server.Resume())
			p.awaitText(t, "history is written again")
			p.send(t, syscall.SIGTERM)
			assert.Equal(t, 0, p.exitCode(t))

			url = strings.Replace(url, "://", "://"+os.Getenv("HISTORY_USER")+"@", 1)
			require.NoError(t, readHistory(t, url, func(r history.Reader) error {
				runs, err := r.Failures(t.Context(), history.RunsQuery{Job: "sad"})
				require.Len(t, runs, len(p.lines(t, "sad")))
				require.Equal(t, "out of paper\n", runs[0].Output)
				return err
			}))
		})
	}
}

// isZombie reports whether a process has ended and waits for a parent that reaps it.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return strings.HasPrefix(strings.TrimSpace(after), "Z")
}

func TestProcess_ReturnsExitCodes(t *testing.T) {
	bad := writeFile(t, "jobs:\n  a: {every: 1}\n")
	shared := writeFile(t, hello)
	require.NoError(t, os.Chmod(shared, 0o666))
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a bad file":          {[]string{"run", "--allow-root", bad}, 2, "jobs.yaml:2:14: jobs.a.every: is the number 1, without a unit"},
		"a bad file, checked": {[]string{"validate", bad}, 2, "jobs.yaml:2:3: jobs.a: has no work"},
		"a file of others":    {[]string{"run", "--allow-root", shared}, 2, "group or others may write it"},
		"warned about it":     {[]string{"validate", shared}, 0, "warning: for rota run, " + shared + " is refused"},
		"a bad log format":    {[]string{"run", "--allow-root", "--log-format", "xml", shared}, 2, "--log-format is \"xml\""},
		"a bad log level":     {[]string{"run", "--allow-root", "--log-level", "loud", shared}, 2, "--log-level is \"loud\""},
		"a bad revision":      {[]string{"run", "--allow-root", "--revision", "-1", shared}, 2, `"--revision" flag: it is below 0`},
		"no server":           {[]string{"run", "--allow-root", "--wait-for-store", "0", "--registry", "etcd://127.0.0.1:1", writeFile(t, hello)}, 1, "connect to etcd://127.0.0.1:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startCommand(t, c.args...)
			assert.Equal(t, c.code, p.exitCode(t))
			assert.Contains(t, p.text(), c.want)
		})
	}
}
