package rotatest_test

import (
	"context"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// The body of a test, in a file that ends in _test.go. It takes milliseconds.
func ExampleRun() {
	var t *testing.T // the test's own
	settleSurvivesACrash(t)
}

func settleSurvivesACrash(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		job := executor.Job{
			Name: "settle", Schedule: schedule.Cron("0 3 * * *"), Shards: 3,
			Handler: executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
				select {
				case <-time.After(time.Minute): // of virtual time
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}),
		}
		f.Start("a", job)
		f.Start("b", job)
		f.NextFire("settle") // sleeps until three; the runs have begun
		f.Crash("a")
		f.Settle() // until nothing runs, is due or moves
		for _, r := range f.Runs("settle") {
			if r.Attempt == 2 && r.Instance == "b" && r.Err == nil {
				return
			}
		}
		t.Error("b did not repeat the runs of a")
	})
}
