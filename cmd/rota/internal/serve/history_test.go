package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/history"
)

// readHistory calls f with a reader of the runs in namespace billing.
func readHistory(t *testing.T, url string, f func(history.Reader) error) error {
	t.Helper()
	db, dialect, err := historyurl.Open(url, historyurl.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := history.SQL(db, dialect, history.SQLOptions{})
	require.NoError(t, err)
	return f(store.Reader("billing", "default"))
}

// requireFires compares the number of fires of job hello and of failed runs of job sad that a database has.
func requireFires(t *testing.T, url string, fires int) {
	t.Helper()
	require.NoError(t, readHistory(t, url, func(r history.Reader) error {
		all, err := r.Fires(t.Context(), history.FiresQuery{Job: "hello"})
		require.NoError(t, err)
		require.Len(t, all, fires)
		for _, f := range all {
			require.EqualValues(t, 2, f.OK, f)
		}
		failures, err := r.Failures(t.Context(), history.RunsQuery{Job: "sad"})
		require.NoError(t, err)
		require.Len(t, failures, fires)
		require.Equal(t, "web-1", failures[0].Instance)
		require.Equal(t, "out of paper\n", failures[0].Output)
		require.Equal(t, 3, *failures[0].ExitCode)
		return err
	}))
}

const helloAndSad = `namespace: billing
jobs:
  hello: {every: 10s, shards: 2, command: [/bin/echo, hello]}
  sad: {every: 10s, shell: "echo out of paper; exit 3"}
`

func TestHistory_KeepsWhatEnded(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "runs.db")
	path := writeFile(t, fmt.Sprintf("history: {url: %q, retention: unlimited}\n", url)+helloAndSad)
	fires := 0
	for life := range 2 { // the second finds the tables
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(life) * time.Hour)
			p := newProcess(path)
			p.start(t.Context())
			time.Sleep(65 * time.Second)
			assert.Len(t, p.find(t, "recording history"), 1)
			p.signals <- syscall.SIGTERM
			require.NoError(t, p.await(t))
			for _, r := range p.records(t) {
				assert.NotEqual(t, "history", r["component"], r)
			}
			fires += len(p.lines(t, "hello")) / 2
			requireFires(t, url, fires)
		})
	}
	assert.Greater(t, fires, 10)
}

func TestHistory_WritesLinesOfJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs.jsonl")
	path := writeFile(t, "history: jsonl:"+file+"\n"+helloAndSad)
	inBubble(t, path, func(t *testing.T, p *process) {
		time.Sleep(35 * time.Second)
		require.NoError(t, os.Rename(file, file+".1"))
		time.Sleep(30 * time.Second)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
	for _, name := range []string{file, file + ".1"} {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		kinds := map[string]int{}
		for line := range bytes.Lines(content) {
			var record struct{ Kind, Job, Namespace string }
			require.NoError(t, json.Unmarshal(line, &record), string(line))
			require.Equal(t, "billing", record.Namespace)
			kinds[record.Kind+" of "+record.Job]++
		}
		assert.GreaterOrEqual(t, kinds["fire of hello"], 3, kinds)
		assert.GreaterOrEqual(t, kinds["run of sad"], 3, kinds)
	}
}

// A database that does not answer holds no run up, and receives the records later.
func TestHistory_WaitsForTheDatabase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "mounted")
	url := "sqlite:" + dir + "/runs.db"
	path := writeFile(t, "history: "+url+"\n"+helloAndSad)
	inBubble(t, path, func(t *testing.T, p *process) {
		begin := time.Now()
		time.Sleep(35 * time.Second)
		assert.Len(t, p.find(t, "history not ready: jobs run, and records wait"), 1)
		assert.Len(t, p.find(t, "history not written: retrying"), 1)
		before := len(p.lines(t, "hello"))
		assert.GreaterOrEqual(t, before, 6)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		time.Sleep(30 * time.Second)
		assert.Len(t, p.find(t, "history is written again"), 1)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
		assert.Less(t, time.Since(begin), 70*time.Second)
		requireFires(t, url, len(p.lines(t, "hello"))/2)
	})
}

// The end of the process does not wait long for a database that does not answer.
func TestHistory_EndsWithoutTheDatabase(t *testing.T) {
	path := writeFile(t, "history: sqlite:/no/such/directory/runs.db\n"+helloAndSad)
	inBubble(t, path, func(t *testing.T, p *process) {
		time.Sleep(65 * time.Second)
		begin := time.Now()
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
		assert.LessOrEqual(t, time.Since(begin), historyCloseTimeout+time.Second)
		lost := p.find(t, "history records not written before the end")
		require.Len(t, lost, 1)
		assert.Greater(t, lost[0]["records"], 10.0)
	})
}

func TestHistory_RefusesToStartWithoutItsSecrets(t *testing.T) {
	for content, want := range map[string]string{
		`{url: "postgres://db/x", password_env: P}`:            "credentials of the history: the environment variable P is not set",
		`{url: "mysql://db/x", password_file: /no/such/file}`:  "credentials of the history: open /no/such/file",
		`{url: "mysql://db/x", tls: {ca_file: /no/such/file}}`: "credentials of the history: read ca_file: open /no/such/file",
		`postgres://db/x?sslmode=nosuch`:                       "history postgres://db/x: not a URL of PostgreSQL",
	} {
		err := run(t.Context(), newProcess(writeFile(t, "history: "+content+"\n"+hello)).options)
		require.ErrorContains(t, err, want)
		assert.Equal(t, exit.Usage, exit.CodeOf(err))
	}
}

func TestReload_RefusesAnotherHistory(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, "history: sqlite:"+dir+"/a.db\n"+hello)
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(path)
		p.start(t.Context())
		time.Sleep(15 * time.Second)
		for i, content := range []string{"history: sqlite:" + dir + "/b.db\n" + hello, hello, "history: {url: \"sqlite:" + dir + "/a.db\", keep: all}\n" + hello} {
			rewrite(t, path, content)
			p.signals <- syscall.SIGHUP
			time.Sleep(time.Second)
			refused := p.find(t, "file not reloaded: the jobs stay as they are")
			require.Len(t, refused, i+1)
			assert.Equal(t, "history cannot change while the process runs: restart it", refused[i]["error"])
		}
		rewrite(t, path, "history: {url: \"sqlite:"+dir+"/a.db\"}\n"+hello)
		p.signals <- syscall.SIGHUP
		time.Sleep(time.Second)
		assert.Len(t, p.find(t, "file reloaded"), 1)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
		assert.NoFileExists(t, dir+"/b.db")
	})
}

func TestDescribe_NamesTheHistory(t *testing.T) {
	f := file(t, "history: postgres://rota@db/runs?sslmode=require\n"+hello)
	got, err := describe("jobs.yaml", f, targetOf(t, f), 1, time.Now())
	require.NoError(t, err)
	assert.Contains(t, got, "registry memory, history postgres://rota@db/runs, digest ")
}
