package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
	"github.com/rota-dev/rota/web/internal/draw"
)

// writer is a job that writes lines, each at once, until the test ends its run.
type writer struct {
	lines chan string
	ended chan struct{}
}

// onWriter calls f with the console of a fleet of which a run goes on: the address of its page is that of shard 0.
func onWriter(t *testing.T, o history.Options, f func(k *kit, w *writer, page string)) {
	rotatest.Run(t, func(fleet *rotatest.Fleet) {
		w := &writer{make(chan string), make(chan struct{})}
		ring := history.NewRing(1000)
		recorder := history.New(ring, o)
		defer func() { require.NoError(t, recorder.Shutdown(context.Background())) }()
		fleet.Options.Observer = recorder.Observer()
		a := fleet.Start("a", executor.Job{Name: "copy", Schedule: schedule.Every(time.Minute), Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			for {
				select {
				case line := <-w.lines:
					r.Logger().Info(line)
				case <-w.ended:
					return errors.New(secret)
				}
			}
		})})
		fleet.Sleep(65 * time.Second)
		k := &kit{T: t, fleet: fleet, op: a.Operator(), user: User{Name: "lee", Role: Reveal}, history: ring.Reader("rotatest", "")}
		k.console = k.newConsole(Options{})
		defer k.console.Close()
		f(k, w, "/jobs/copy/fires/2000-01-01T00:01:00Z/shards/0")
		close(w.ended)
	})
}

func TestLog_ShowsALineWithinTwoSeconds(t *testing.T) {
	onWriter(t, history.Options{}, func(k *kit, w *writer, page string) {
		assert.Contains(k, k.page(page), "Nothing has been logged yet.")
		for n := range 10 {
			text := fmt.Sprintf("line %d %s", n, hostile)
			w.lines <- text
			began, body := time.Now(), ""
			for !strings.Contains(body, fmt.Sprintf("line %d ", n)) { // as the script does
				time.Sleep(draw.LogAgain)
				body = k.page(page)
				require.Contains(k, body, `<section id="log" data-again="500">`)
				require.Less(k, time.Since(began), 2*time.Second)
			}
			assert.NotContains(k, body, "<script>alert")
			assert.Contains(k, body, fmt.Sprintf(`-%d" class="of-info"`, n))
			time.Sleep(time.Duration(n*137) * time.Millisecond)
		}
	})
}

func TestLog_OfARunThatHasEndedIsNotFetchedAgain(t *testing.T) {
	onFleet(t, func(k *kit) {
		body := k.page("/jobs/export/fires/2000-01-01T00:01:00Z/shards/1")
		for _, text := range []string{"Attempt 1 on ", "reads the ledger", "<b>end</b> failed"} {
			assert.Contains(t, body, text)
		}
		assert.NotContains(t, body, "data-again")
	})
}

func TestLog_NeedsReveal(t *testing.T) {
	onFleet(t, func(k *kit) {
		reads := countLogs(k)
		k.user.Role = Look
		body := k.page("/jobs/export/fires/2000-01-01T00:01:00Z/shards/1")
		assert.Contains(t, body, draw.LogNeedsReveal)
		assert.NotContains(t, body, "reads the ledger")
		assert.Zero(t, reads.Load(), "it is not even read")
		assert.Equal(t, http.StatusForbidden, k.get("/api/v1/jobs/export/logs").Code)
		k.user.Role = Reveal
		assert.Contains(t, k.page("/jobs/export/fires/2000-01-01T00:01:00Z/shards/1"), "reads the ledger")
		assert.Contains(t, k.page("/api/v1/jobs/export/logs"), "reads the ledger")
	})
}

func TestLog_ExplainsWhyThereIsNone(t *testing.T) {
	const ofRun, ofSilentRun = "/jobs/export/fires/2000-01-01T00:01:00Z/shards/1", "/jobs/settle/fires/2000-01-01T00:01:00Z/shards/1"
	onFleet(t, func(k *kit) {
		assert.Contains(t, k.page(ofSilentRun), draw.LogEmpty)
		with := k.history
		for note, reader := range map[string]history.Reader{look.WithoutLogs: withoutLogs{with}, draw.LogUnreadable: logsAway{with}} {
			k.history = reader
			k.console = k.newConsole(Options{})
			assert.Contains(t, k.page(ofRun), note)
			k.console.Close()
		}
		k.history = nil
		k.console = k.newConsole(Options{})
		defer k.console.Close()
		assert.Contains(t, k.page(ofRun), draw.LogWithoutHistory)
	})
}

// withoutLogs is a history of records only.
type withoutLogs struct{ history.Reader }

// logsAway is a history whose table of logs is missing.
type logsAway struct{ history.Reader }

func (logsAway) Logs(context.Context, history.LogQuery) ([]history.Log, error) {
	return nil, errors.New("no table")
}

// countingLogs counts the queries of logs.
type countingLogs struct {
	history.Reader
	queries *atomic.Int64
}

func (c countingLogs) Logs(ctx context.Context, q history.LogQuery) ([]history.Log, error) {
	c.queries.Add(1)
	return c.Reader.(history.LogReader).Logs(ctx, q)
}

// countLogs has the console of k count its queries of logs.
func countLogs(k *kit) *atomic.Int64 {
	n := new(atomic.Int64)
	k.console.options.History = countingLogs{k.history, n}
	return n
}

func TestLog_IsReadOnceForAllViewers(t *testing.T) {
	onWriter(t, history.Options{}, func(k *kit, w *writer, page string) {
		reads := countLogs(k)
		w.lines <- "one"
		for range 100 { // 10 s of five viewers
			for range 5 {
				k.page(page)
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(k, reads.Load(), int64(10*time.Second/logFor+1))
		assert.Greater(k, reads.Load(), int64(10))
	})
}

// The page shows the begin and the end as recorded, and the size of the gap.
func TestLog_HasTheBeginAndTheEnd(t *testing.T) {
	onWriter(t, history.Options{Logs: history.LogOptions{Run: 4 << 10}}, func(k *kit, w *writer, page string) {
		for n := range 1000 {
			w.lines <- fmt.Sprintf("line %d", n)
			if n%50 == 0 {
				time.Sleep(time.Second)
			}
		}
		time.Sleep(2 * time.Second)
		body := k.page(page)
		assert.Contains(k, body, "</b> line 0</li>")
		assert.Contains(k, body, "</b> line 999</li>")
		assert.Equal(k, 1, strings.Count(body, `class="of-missing"`))
		assert.Regexp(k, `<b>missing</b> \d+ lines \(\d+ bytes\) are missing`, body)
		assert.Less(k, len(body), 40<<10)
	})
}
