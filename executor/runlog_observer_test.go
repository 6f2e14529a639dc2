package executor_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

// RunLog is asked where a run logs, with the data that the executor has of the run, as long as the handler runs.
func TestObserver_RunLogReceivesTheRecordsOfARun(t *testing.T) {
	bubble(t, "of a job", func(t *testing.T, f *fleet) {
		process, kept := &logbook{}, &logbook{}
		var infos []executor.RunInfo
		var late *executor.Run
		e := f.executor("a", executor.Options{Logger: process.logger(slog.LevelWarn)}, 1, takes(0))
		e.Observe(executor.Observer{RunLog: func(i executor.RunInfo) slog.Handler {
			infos = append(infos, i)
			return kept.logger(slog.LevelInfo).Handler()
		}})
		e.Observe(executor.Observer{RunLog: func(executor.RunInfo) slog.Handler { return nil }})
		handle := func(_ context.Context, r *executor.Run) error {
			late = r
			if r.Param == "quiet" {
				return nil
			}
			r.Job, r.Shard, r.ID = "changed", 9, "changed"
			r.Logger().Info("kept only", "n", 1)
			r.Logger().Error("in both")
			return nil
		}
		assert.NoError(t, e.Register(executor.Job{Name: "logs", Handler: executor.HandlerFunc(handle)}))
		assert.NoError(t, e.Start(t.Context()))
		time.Sleep(5 * time.Second)
		for _, param := range []string{"quiet", "loud"} {
			_, err := e.Trigger(t.Context(), "logs", executor.Trigger{Param: param})
			assert.NoError(t, err)
			time.Sleep(5 * time.Second)
		}
		synctest.Wait()
		late.Logger().Error("after the end")
		assert.Len(t, infos, 2, "not for a run that logs nothing, and not after its end")
		assert.Equal(t, "logs", infos[0].Job)
		assert.Equal(t, 0, infos[0].Shard)
		assert.Equal(t, "loud", infos[0].Param)
		assert.Len(t, kept.lines("n=1"), 1)
		assert.Len(t, kept.lines(""), 2)
		assert.Empty(t, process.lines("kept only"))
		assert.Len(t, process.lines("in both", "job=changed"), 1)
		assert.NoError(t, e.Shutdown(context.WithoutCancel(t.Context())))
	})
}
