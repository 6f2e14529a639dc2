package runhistory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
)

// runOf returns the info of a run of job "settle", with its log.
func runOf(rec *history.Recorder, fire, shard int) (executor.RunInfo, *slog.Logger) {
	at := time.Date(2000, 1, 1, 0, fire, 0, 0, time.UTC)
	info := executor.RunInfo{Namespace: "billing", Group: "default", Job: "settle", ID: fmt.Sprint(fire, "/", shard), Instance: "a", Shard: shard, FireTime: at, Attempt: 1}
	return info, slog.New(rec.Observer().RunLog(info))
}

func TestFollow_ShowsEachLineOnceWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := history.NewRing(1000)
		rec := history.New(ring, history.Options{Namespace: "billing"})
		_, old := runOf(rec, 0, 0)
		_, before := runOf(rec, 1, 0)
		old.Info("old")
		before.Info("before")
		time.Sleep(5 * time.Second)

		ctx, stop := context.WithCancel(t.Context())
		shown, done := map[string]time.Time{}, make(chan error)
		var order []string
		go func() {
			done <- follow(ctx, ring.Reader("billing", ""), history.LogQuery{Job: "settle", Latest: true, Limit: 3}, time.Second, func(lines []view.LogLine) error {
				for _, l := range lines {
					require.NotContains(t, shown, l.Text)
					shown[l.Text] = time.Now()
					order = append(order, l.Text)
				}
				return nil
			})
		}()
		logged := map[string]time.Time{}
		for n := range 100 {
			for shard := range 3 {
				info, log := runOf(rec, 2+n/10, shard)
				text := fmt.Sprintf("line %d of %s", n, info.ID)
				logged[text] = time.Now()
				log.Info(text)
				if n%10 == 9 {
					rec.Observer().RunEnded(executor.RunEnded{Run: info, Ended: time.Now(), Outcome: history.Outcome("ended " + info.ID)})
				}
			}
			time.Sleep(time.Duration(n*37%900) * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		stop()
		require.NoError(t, <-done)
		require.Equal(t, "before", order[0])
		require.NotContains(t, shown, "old")
		for text, at := range logged {
			require.Contains(t, shown, text)
			require.LessOrEqual(t, shown[text].Sub(at), 2*time.Second, text)
		}
		require.Len(t, shown, 1+300+30)
		require.NoError(t, rec.Shutdown(context.Background()))
	})
}

type failingReader struct{ history.Reader }

func (failingReader) Logs(ctx context.Context, _ history.LogQuery) ([]history.Log, error) {
	<-ctx.Done()
	return nil, errors.New("database is away")
}

func TestFollow_EndsWithTheDatabaseOrTheCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		print := func([]view.LogLine) error { return nil }
		require.EqualError(t, follow(t.Context(), failingReader{}, history.LogQuery{}, time.Second, print), "database is away")
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		require.NoError(t, follow(ctx, failingReader{}, history.LogQuery{}, time.Second, print))
	})
}
