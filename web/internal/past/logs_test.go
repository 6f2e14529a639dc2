package past

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
)

// writeLog writes the log of an attempt.
func writeLog(rec *history.Recorder, fire time.Time, shard, attempt, lines int) {
	info := executor.RunInfo{
		Namespace: "n", Group: "default", Job: "copy", ID: fmt.Sprint(shard, "/", attempt), Instance: "a", FireTime: fire, Shard: shard, Attempt: attempt, Fence: 7,
	}
	log := slog.New(rec.Observer().RunLog(info))
	for n := range lines {
		log.Info(fmt.Sprintf("line %d %s", n, strings.Repeat("x", 200)))
	}
	rec.Observer().RunEnded(executor.RunEnded{Run: info, Ended: time.Now(), Outcome: history.Failed})
	time.Sleep(5 * time.Second)
}

// inLogs calls f with a recorder that keeps long logs, and the reader of its history.
func inLogs(t *testing.T, f func(rec *history.Recorder, r history.Reader)) {
	synctest.Test(t, func(t *testing.T) {
		ring := history.NewRing(100_000)
		rec := history.New(ring, history.Options{Namespace: "n", Logs: history.LogOptions{Run: 8 << 20, Fire: 64 << 20, JobPerSecond: 16 << 20}})
		f(rec, ring.Reader("n", ""))
		require.NoError(t, rec.Shutdown(context.Background()))
	})
}

func TestLogs_OfAnAttemptAreBounded(t *testing.T) {
	fire := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	inLogs(t, func(rec *history.Recorder, r history.Reader) {
		writeLog(rec, fire, 0, 1, 10_000)
		logs, left, err := ReadLogs(t.Context(), r, "copy", fire, 0, 0)
		require.NoError(t, err)
		require.Len(t, logs, 1)
		assert.Zero(t, left)
		size, missing := 0, 0
		for _, l := range logs[0].Lines {
			if size += len(l.Text); l.Kind == history.LogMissing {
				_, err := fmt.Sscanf(l.Text, "%d lines are not on this page", &missing)
				require.NoError(t, err)
			}
		}
		assert.LessOrEqual(t, size, LogOfRun)
		assert.Greater(t, size, LogOfRun*3/4)
		assert.Equal(t, 10_000+1, len(logs[0].Lines)-1+missing, "each line is there or counted")
		assert.Equal(t, "line 0", logs[0].Lines[0].Text[:6])
		assert.Equal(t, history.LogEnd, logs[0].Lines[len(logs[0].Lines)-1].Kind)
		assert.True(t, logs[0].Ended)
	})
}

func TestLogs_AreOfTheLastAttempts(t *testing.T) {
	fire := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	inLogs(t, func(rec *history.Recorder, r history.Reader) {
		for attempt := range 8 {
			writeLog(rec, fire, 3, attempt+1, 2)
			writeLog(rec, fire, 4, attempt+1, 2)
		}
		writeLog(rec, fire.Add(time.Hour), 3, 1, 2)
		logs, left, err := ReadLogs(t.Context(), r, "copy", fire, 0, 3)
		require.NoError(t, err)
		assert.Equal(t, 3, left)
		for i, l := range logs {
			assert.Equal(t, 4+i, l.Attempt)
			assert.Len(t, l.Lines, 3)
		}
		assert.Len(t, logs, LogsOnPage)
	})
}

func TestLogs_MayGrowUntilTheirEnd(t *testing.T) {
	fire := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	inLogs(t, func(rec *history.Recorder, r history.Reader) {
		info := executor.RunInfo{Namespace: "n", Group: "default", Job: "copy", ID: "1", Instance: "a", FireTime: fire, Attempt: 1}
		slog.New(rec.Observer().RunLog(info)).Info("begins")
		time.Sleep(2 * time.Second)
		mayGrow := func() bool {
			logs, _, err := ReadLogs(t.Context(), r, "copy", fire, 0, 0)
			require.NoError(t, err)
			return logs[0].MayGrow(time.Now())
		}
		assert.True(t, mayGrow())
		time.Sleep(lastLines)
		assert.False(t, mayGrow(), "its process may have crashed")
		slog.New(rec.Observer().RunLog(info)).Info("goes on")
		rec.Observer().RunEnded(executor.RunEnded{Run: info, Ended: time.Now(), Outcome: history.Succeeded})
		time.Sleep(2 * time.Second)
		assert.False(t, mayGrow())
	})
}
