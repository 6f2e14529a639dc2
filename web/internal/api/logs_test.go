package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
)

// logs returns an answer with lines of logs.
func (f *fleet) logs(path string) *view.Logs {
	f.t.Helper()
	r := f.get(path)
	body := read(f.t, r)
	require.Equal(f.t, http.StatusOK, r.StatusCode, body)
	return decode(f.t, body, reflect.TypeFor[view.Logs]()).(*view.Logs)
}

func texts(v *view.Logs) (all []string) {
	for _, l := range v.Lines {
		all = append(all, fmt.Sprintf("%d %d %s %s", l.Shard, l.Line, l.Kind, l.Text))
	}
	return all
}

func TestLogs_SelectRuns(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		lines := func(shard int, outcome string) (all []string) {
			for n := range 3 {
				all = append(all, fmt.Sprintf("%d %d info step %d with %s", shard, n, n, secret))
			}
			return append(all, fmt.Sprintf("%d 3 end %s", shard, outcome))
		}
		latest := f.logs("/jobs/broken/logs")
		assert.ElementsMatch(t, append(lines(0, "succeeded"), lines(1, "failed")...), texts(latest))
		for _, l := range latest.Lines {
			assert.Equal(t, "2000-01-01T00:02:00Z", l.Fire.UTC().Format(time.RFC3339))
		}
		first := f.logs("/jobs/broken/logs?fire=2000-01-01T00:01:00Z&shard=1")
		assert.Equal(t, lines(1, "failed"), texts(first))
		assert.Equal(t, "2000-01-01T00:01:00Z", first.Lines[0].Fire.UTC().Format(time.RFC3339))
		assert.Equal(t, lines(1, "failed"), texts(f.logs("/jobs/broken/logs?run="+first.Lines[0].Run)))
		assert.Empty(t, f.logs("/jobs/broken/logs?trigger=9").Lines)
		assert.Empty(t, f.logs("/jobs/broken/logs?since=1s").Lines, "nothing was written in the last second")
		assert.Len(t, f.logs("/jobs/broken/logs?since=1h").Lines, 16)
		assert.Empty(t, f.logs("/jobs/settle/logs").Lines)
		assert.Equal(t, "unknown-job", problem(t, f.get("/jobs/nowhere/logs")).Type)
		assert.Equal(t, "invalid-argument", problem(t, f.get("/jobs/broken/logs?page=11&limit=1000")).Type)
	})
}

func TestLogs_ArePages(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		all := texts(f.logs("/jobs/broken/logs?since=1h"))
		var paged []string
		for path := "/jobs/broken/logs?since=1h&limit=5"; path != ""; {
			r := f.get(path)
			paged = append(paged, texts(decode(t, read(t, r), reflect.TypeFor[view.Logs]()).(*view.Logs))...)
			assert.Empty(t, r.Header.Get("Total-Count"), "not all is read")
			query, _, found := strings.Cut(r.Header.Get("Link"), ">")
			if path = ""; found {
				path = "/jobs/broken/logs" + strings.TrimPrefix(query, "<")
			}
		}
		assert.Equal(t, all, paged)
	})
}

// A program can follow a log: it repeats a query of the last seconds, and leaves out known lines.
func TestLogs_CanBeFollowed(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		ring := history.NewRing(1000)
		rec := history.New(ring, history.Options{Namespace: "billing"})
		f.config.History = ring.Reader("billing", "")
		f.api = New(f.config)
		info := executor.RunInfo{Namespace: "billing", Group: "default", Job: "broken", ID: "run", Instance: "web-1", FireTime: time.Now(), Attempt: 1, Fence: 7}
		log := slog.New(rec.Observer().RunLog(info))
		known := map[string]bool{}
		var got []string
		for n := range 40 {
			log.Info(fmt.Sprint("line ", n))
			time.Sleep(300 * time.Millisecond)
			for _, l := range f.logs("/jobs/broken/logs?since=15s").Lines {
				if id := fmt.Sprint(l.Run, l.Fence, l.Line, l.Kind); !known[id] && l.Kind != history.LogMissing {
					known[id] = true
					got = append(got, l.Text)
				}
			}
		}
		for n := range len(got) {
			assert.Equal(t, fmt.Sprint("line ", n), got[n])
		}
		assert.GreaterOrEqual(t, len(got), 36, "a line is there within a second")
		require.NoError(t, rec.Shutdown(context.Background()))
	})
}

// recordsOnly is a history that has no logs.
type recordsOnly struct{ history.Reader }

// logsAway is a history whose table of logs is missing.
type logsAway struct{ history.Reader }

func (logsAway) Logs(context.Context, history.LogQuery) ([]history.Log, error) {
	return nil, errors.New("no such table: rota_log in " + secret)
}

func TestLogs_OfAHistoryThatHasNone(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		for kind, reader := range map[string]history.Reader{"no-history": nil, "no-logs": recordsOnly{f.config.History}, "history-unavailable": logsAway{f.config.History}} {
			f.config.History = reader
			p := problem(t, serve(New(f.config), request(http.MethodGet, "/jobs/broken/logs", "")))
			assert.Equal(t, kind, p.Type)
			assert.NotContains(t, p.Detail, secret)
		}
	})
}
