package rotatest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

func daemonJob() executor.Job {
	return executor.Job{Name: "daemon", Schedule: schedule.Always(), Shards: 2, Handler: executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})}
}

func TestDaemon_LosesNothing(t *testing.T) {
	for name, act := range map[string]func(t *testing.T, f *rotatest.Fleet, ex *executor.Executor){
		"by a pause and a resume": func(t *testing.T, f *rotatest.Fleet, ex *executor.Executor) {
			require.NoError(t, ex.Operator().Pause(t.Context(), "daemon"))
			f.Sleep(10 * time.Minute)
			require.NoError(t, ex.Operator().Resume(t.Context(), "daemon"))
		},
		"by a disabled shard": func(t *testing.T, f *rotatest.Fleet, ex *executor.Executor) {
			scope := operator.Scope{Job: "daemon", Shards: []int{1}}
			require.NoError(t, ex.Operator().Disable(t.Context(), scope))
			f.Sleep(10 * time.Minute)
			require.NoError(t, ex.Operator().Enable(t.Context(), scope))
		},
		"by a new definition": func(_ *testing.T, f *rotatest.Fleet, _ *executor.Executor) {
			job := daemonJob()
			job.Revision, job.Param = 1, "new"
			f.Register("a", job)
		},
		"by a move": func(_ *testing.T, f *rotatest.Fleet, _ *executor.Executor) { f.Start("b", daemonJob()) },
		"by a crash": func(_ *testing.T, f *rotatest.Fleet, _ *executor.Executor) {
			f.Crash("a")
			f.Start("a", daemonJob())
		},
	} {
		t.Run(name, func(t *testing.T) {
			rotatest.Run(t, func(f *rotatest.Fleet) {
				ex := f.Start("a", daemonJob())
				f.Sleep(10 * time.Minute)
				act(f.T(), f, ex)
				f.Sleep(10 * time.Minute)
				f.Settle()
				running := 0
				for _, r := range f.Runs("daemon") {
					if r.End.IsZero() {
						running++
					}
				}
				assert.Equal(t, 2, running)
			})
		})
	}
}

func TestDaemon_ThatReturnsLosesNothing(t *testing.T) {
	for name, schedule := range map[string]schedule.Schedule{"a daemon": schedule.Always(), "a fixed delay": schedule.FixedDelay(10 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			rotatest.Run(t, func(f *rotatest.Fleet) {
				job := daemonJob()
				job.Schedule, job.Handler = schedule, executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error { return sleep(ctx, 10*time.Minute) })
				f.Start("a", job)
				f.Sleep(time.Hour)
			})
		})
	}
}

func TestSettle_WaitsForRetriesThatHaveABound(t *testing.T) {
	for name, c := range map[string]struct {
		retry executor.Retry
		want  int
	}{
		"with a bound":    {executor.Retry{Max: 3, Initial: time.Minute}, 4},
		"without a bound": {executor.Retry{Max: -1, Initial: time.Minute}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			rotatest.Run(t, func(f *rotatest.Fleet) {
				f.Start("a", executor.Job{Name: "pay", Schedule: schedule.Every(time.Hour), Retry: c.retry, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
					return errors.New("out of order")
				})})
				f.NextFire("pay")
				f.Settle()
				assert.Len(t, f.Runs("pay"), c.want)
			})
		})
	}
}
