package rotatest_test

import (
	"context"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

func TestSettleSurvivesACrash(t *testing.T) { // no server, no sleep, milliseconds
	rotatest.Run(t, func(f *rotatest.Fleet) {
		job := settleJob(func(ctx context.Context, r *executor.Run) error { return sleep(ctx, time.Minute) })
		f.Start("a", job)
		f.Start("b", job)
		f.NextFire("settle")
		f.Crash("a")
		f.Settle()
		for _, r := range f.Runs("settle") {
			if r.Attempt == 2 && r.Instance == "b" {
				return
			}
		}
		t.Error("nothing of a was rerun on b")
	})
}

func settleJob(h executor.HandlerFunc) executor.Job {
	return executor.Job{
		Name: "settle", Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"), Shards: 3,
		ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"}, Handler: h,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
