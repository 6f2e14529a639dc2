package cli

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/schedule"
)

func TestRetry_RefusesWorkThatIsDone(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var mended atomic.Bool
		f.start("web-1", nil, executor.Job{Name: "charge", Schedule: schedule.Every(time.Hour), Shards: 3, Handler: executor.HandlerFunc(
			func(_ context.Context, r *executor.Run) error {
				if r.Shard > 0 && !mended.Load() {
					return errors.New("no")
				}
				return nil
			})})
		time.Sleep(61 * time.Minute)
		mended.Store(true)
		for _, c := range []struct {
			line string
			code int
			has  string
		}{
			{"retry charge --fire 01:00 --shards 1", exit.OK, "retries shard 1 of fire 2000-01-01T01:00:00Z of charge: trigger #1\n"},
			{"retry charge --fire 01:00 --shards 1", exit.NotMet, "trigger #1 has retried it, and has succeeded"},
			{"retry charge --fire 01:00", exit.OK, "retries shard 2 of fire 2000-01-01T01:00:00Z of charge: trigger #2; not shard 1: trigger #1 has retried it"},
			{"retry charge --fire 01:00", exit.NotMet, "--again runs it as new work"},
			{"retry charge --fire 01:00 --again", exit.OK, "trigger #3, as new work\n"},
		} {
			r := f.run(c.line)
			assert.Equal(t, c.code, r.code, "%s: %s", c.line, r.err)
			assert.Contains(t, r.out+r.err, c.has, c.line)
			time.Sleep(2 * time.Second)
		}
	})
}

func TestRetry_FindsFailuresInTheHistory(t *testing.T) {
	now := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC)
	url := putHistory(t, now, time.Hour, history.Run{
		Namespace: "billing", Group: "default", ID: "billing/default/tenants/3/#4-abcdefghijklm/1", Job: "tenants", Fire: now.Add(-30 * time.Minute),
		Shard: 3, Shards: 16, Attempt: 1, Trigger: 4, Instance: "web-1", Ended: now.Add(-29 * time.Minute), Outcome: history.Failed,
	})
	inFleet(t, func(t *testing.T, f *fleet) {
		runs := make(chan *executor.Run, 100)
		f.start("web-1", nil, executor.Job{Name: "tenants", Schedule: schedule.Every(time.Hour), Shards: 16, Handler: executor.HandlerFunc(
			func(_ context.Context, r *executor.Run) error {
				if r.Trigger > 0 {
					runs <- r
				}
				return nil
			})})
		time.Sleep(time.Until(now))
		r := f.run("retry tenants --fire 01:00")
		assert.Equal(t, exit.NotMet, r.code, r.err)
		r = f.run("retry tenants --fire 01:00 --history '" + url + "'")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Contains(t, r.out, "retries shard 7 of fire 2000-01-01T01:00:00Z of tenants: trigger #1")
		time.Sleep(time.Second)
		assert.Equal(t, "billing/default/tenants/7/2000-01-01T01:00:00Z", (<-runs).Key)

		r = f.run("retry tenants --fire 01:30 --history '" + url + "'")
		assert.Equal(t, exit.NotMet, r.code, r.out)
		assert.Contains(t, r.err, "the failure of trigger #4 is in the history only, which does not have its parameter: trigger the job again")
	})
}

func TestRetry_NeedsTheParameterOfATrigger(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		params := make(chan string, 100)
		f.start("web-1", nil, executor.Job{Name: "purge", Param: "all", Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			params <- r.Param
			return errors.New("no")
		})})
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		at := time.Now().UTC().Format(time.RFC3339)
		require.Equal(t, exit.OK, f.run("trigger purge --param tenant-7").code)
		time.Sleep(time.Second)
		r := f.run("retry purge --fire " + at)
		assert.Equal(t, exit.NotMet, r.code, r.out)
		assert.Contains(t, r.err, "--param names the parameter of a trigger")
		assert.Contains(t, r.err, "trigger #1 had a parameter of its own, which is not on record: name it (--again")
		r = f.run("retry purge --param tenant-7 --fire " + at)
		assert.Equal(t, exit.OK, r.code, r.err)
		time.Sleep(time.Second)
		assert.Equal(t, "tenant-7", <-params)
		assert.Equal(t, "tenant-7", <-params)
		assert.Empty(t, params)
	})
}
