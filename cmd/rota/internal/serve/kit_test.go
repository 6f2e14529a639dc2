package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// journal is a log in memory.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// record is a line of a log.
type record map[string]any

func (j *journal) records(t *testing.T) (all []record) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buf.String()) {
		var r record
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		all = append(all, r)
	}
	return all
}

// find returns the records with a message.
func (j *journal) find(t *testing.T, message string) (all []record) {
	t.Helper()
	for _, r := range j.records(t) {
		if r["msg"] == message {
			all = append(all, r)
		}
	}
	return all
}

// lines returns the output of a job.
func (j *journal) lines(t *testing.T, job string) (all []string) {
	t.Helper()
	for _, r := range j.find(t, "output") {
		if r["job"] == job {
			all = append(all, r["line"].(string))
		}
	}
	return all
}

// writeFile writes a file of jobs that run accepts, and returns its path.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	rewrite(t, path, content)
	return path
}

// inOpenDirectory is writeFile in a directory below one with these permissions.
func inOpenDirectory(t *testing.T, mode os.FileMode) string {
	t.Helper()
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.MkdirAll(filepath.Join(open, "conf"), 0o700))
	require.NoError(t, os.Chmod(open, mode))
	path := filepath.Join(open, "conf", "jobs.yaml")
	rewrite(t, path, hello)
	return path
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// process is a run of this package in a bubble.
type process struct {
	*journal
	options
	signals chan os.Signal
	exits   []int
	ended   chan error
}

// newProcess returns a process that is not started. Time is virtual.
func newProcess(path string) *process {
	p := &process{journal: &journal{}, signals: make(chan os.Signal, 8), ended: make(chan error, 1)}
	p.options = options{
		file: path, revision: -1, instance: "web-1", allowRoot: true, uid: os.Geteuid(), env: []string{"PATH=/usr/bin:/bin"},
		log: p.journal.logger(), signals: p.signals, exit: func(code int) { p.exits = append(p.exits, code) },
	}
	return p
}

func (p *process) start(ctx context.Context) {
	go func() { p.ended <- run(ctx, p.options) }()
}

// inBubble calls f in a bubble with a started process.
func inBubble(t *testing.T, path string, f func(t *testing.T, p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(path)
		p.start(t.Context())
		f(t, p)
	})
}

// await waits for the end of the process.
func (p *process) await(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Hour):
		t.Fatal("the process does not end")
		return nil
	}
}
