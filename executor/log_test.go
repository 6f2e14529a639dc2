package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// logbook is what executors log.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// logger returns a logger that writes lines from level up.
func (b *logbook) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level}))
}

// lines returns the lines that have all of some texts, and forgets nothing.
func (b *logbook) lines(texts ...string) (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func TestLog_Runs(t *testing.T) {
	bubble(t, "that fail are logged in full once per job and interval, and counted", func(t *testing.T, f *fleet) {
		log := &logbook{}
		const shards = 400 // of which one panics
		e := f.executor("a", executor.Options{Logger: log.logger(slog.LevelInfo), Workers: 2 * shards}, 1, takes(0))
		require.NoError(t, e.Register(executor.Job{
			Name: "failing", Schedule: schedule.Every(time.Second), Shards: shards,
			Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
				if r.Shard == 7 {
					panic("at once")
				}
				return fmt.Errorf("shard %d has no luck", r.Shard)
			}),
		}, executor.Job{
			Name: "other", Schedule: schedule.Every(time.Minute), Shards: 1,
			Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return errors.New("another job") }),
		}))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(65*time.Second + 500*time.Millisecond)
		require.NoError(t, e.Shutdown(context.Background()))
		full, counted := log.lines("level=WARN", `msg="run failed"`, "job=failing"), log.lines("level=WARN", `msg="more runs failed"`, "job=failing")
		assert.LessOrEqual(t, len(full), 7)
		require.NotEmpty(t, full)
		assert.Contains(t, full[0], "has no luck")
		assert.Contains(t, full[0], "run=test/default/failing/")
		sum := len(full)
		for _, line := range counted {
			_, rest, _ := strings.Cut(line, " count=")
			n := 0
			fmt.Sscan(rest, &n)
			sum += n
			assert.Contains(t, line, "has no luck")
		}
		assert.Equal(t, len(full), len(counted), "also the last interval, which the shutdown ends")
		assert.Zero(t, sum%(shards-1), "none is left out: %d", sum)
		assert.GreaterOrEqual(t, sum, 50*(shards-1))
		panicked := log.lines("level=WARN", `msg="run panicked"`, "run=test/default/failing/7/", "stack=")
		assert.NotEmpty(t, panicked, "a panic among other failures has its stack in the log")
		assert.LessOrEqual(t, len(panicked), 7)
		assert.Len(t, log.lines(`msg="run failed"`, "job=other", "another job"), 1)
		assert.Empty(t, log.lines(`msg="more runs failed"`, "job=other"))
	})
	bubble(t, "that panic are logged with the stack", func(t *testing.T, f *fleet) {
		log := &logbook{}
		f.start("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, 1, panicsHere)
		until(1)
		lines := log.lines("level=WARN", `msg="run panicked"`)
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "handler panicked: at the disco")
		assert.Contains(t, lines[0], "stack=")
		assert.Contains(t, lines[0], "executor_test.panicsHere")
	})
	bubble(t, "that succeed are logged at DEBUG", func(t *testing.T, f *fleet) {
		quiet, all := &logbook{}, &logbook{}
		f.start("a", executor.Options{Logger: quiet.logger(slog.LevelInfo)}, 2, takes(2*time.Second))
		f.start("b", executor.Options{Logger: all.logger(slog.LevelDebug)}, 2, takes(2*time.Second))
		until(1)
		time.Sleep(5 * time.Second)
		assert.Empty(t, quiet.lines("run="))
		lines := all.lines("level=DEBUG", `msg="run succeeded"`, "took=2s")
		require.Len(t, lines, 1)
		assert.Contains(t, lines[0], "run=test/default/job/")
	})
	bubble(t, "whose handlers ignore the time-out are logged ever more seldom, and when they return", func(t *testing.T, f *fleet) {
		log := &logbook{}
		e := f.executor("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, 1, takes(0))
		require.NoError(t, e.Register(executor.Job{
			Name: "deaf", Schedule: schedule.Every(time.Hour), Timeout: time.Second,
			Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
				time.Sleep(31 * time.Minute)
				return nil
			}),
		}))
		require.NoError(t, e.Start(t.Context()))
		until(60)
		overdue := func() []string { return log.lines("level=WARN", `msg="handler ignores its time-out"`) }
		time.Sleep(4 * time.Second)
		assert.Empty(t, overdue())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, overdue(), 1)
		assert.Contains(t, overdue()[0], "run=test/default/deaf/0/2000-01-01T01:00:00Z/1")
		assert.Contains(t, overdue()[0], "since=2000-01-01T01:00:00.000Z")
		time.Sleep(9 * time.Minute)
		assert.Len(t, overdue(), 4)
		assert.Empty(t, log.lines("handler returned"))
		time.Sleep(20 * time.Minute) // 5 s, 20 s, 65 s, 200 s, 605 s, then each 10 min
		assert.Len(t, overdue(), 6)
		time.Sleep(2 * time.Minute)
		assert.Len(t, overdue(), 7)
		returned := log.lines("level=INFO", `msg="handler returned after its time-out"`, "took=31m0s")
		assert.Len(t, returned, 1)
	})
}

func panicsHere(context.Context, *executor.Run) error { panic("at the disco") }

func TestLog_Outage(t *testing.T) {
	bubble(t, "of the store for 45 s is logged once per event at every process", func(t *testing.T, f *fleet) {
		logs := map[string]*logbook{}
		for _, name := range []string{"a", "b", "c"} {
			logs[name] = &logbook{}
			f.start(name, executor.Options{Logger: logs[name].logger(slog.LevelInfo)}, 6, takes(50*time.Second))
		}
		until(1)
		before := map[string]int{}
		for name, log := range logs {
			before[name] = len(log.lines())
		}
		resume := f.server.Pause()
		time.Sleep(45 * time.Second)
		resume()
		time.Sleep(14 * time.Second)
		for name, log := range logs {
			for _, texts := range [][]string{
				{"level=WARN", `msg="store unreachable"`, "safe_until=", "next="},
				{"level=WARN", `msg="session lost"`, "runs=2 shards=2", "next="},
				{"level=INFO", `msg="joined again"`, "away="},
				{"level=INFO", `msg="run ended with its session"`},
			} {
				assert.Len(t, log.lines(texts...), 1, "%s: %v", name, texts)
			}
			assert.Empty(t, log.lines("level=ERROR"), name)
			assert.LessOrEqual(t, len(log.lines())-before[name], 14, "%s:\n%s", name, strings.Join(log.lines()[before[name]:], "\n"))
		}
	})
	bubble(t, "of the store during a shutdown is logged, with what the shutdown waits for", func(t *testing.T, f *fleet) {
		log := &logbook{}
		a := f.start("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, 2, takes(time.Second))
		defer f.server.Pause()()
		assert.NoError(t, a.Shutdown(t.Context()))
		waits := log.lines("level=WARN", `msg="shutdown waits for the store"`)
		require.NotEmpty(t, waits)
		assert.Contains(t, waits[0], `waits_for="the record that this instance drains"`)
		assert.LessOrEqual(t, len(waits), 3)
	})
}
