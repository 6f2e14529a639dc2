package cli

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// A job that has never succeeded is failing, whether it runs or not.
func TestScreens_ShowTheStateOfTheLastEndedRun(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var broken atomic.Bool
		broken.Store(true)
		f.start("web-1", nil, executor.Job{Name: "hang", Schedule: schedule.Every(20 * time.Second), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
			time.Sleep(6 * time.Second)
			if broken.Load() {
				return errors.New("timed out")
			}
			return nil
		})})
		time.Sleep(22 * time.Second) // the first run
		assert.Regexp(t, `(?m)^hang .+, 1 run .+ ok$`, f.run("jobs").out)
		for range 3 {
			time.Sleep(10 * time.Second)
			assert.Regexp(t, `(?m)^hang .+ 1 +0/\d/0 +failing: shard 0$`, f.run("jobs").out)
			time.Sleep(10 * time.Second)
			assert.Regexp(t, `(?m)^hang .+, 1 run .+ failing: shard 0$`, f.run("jobs").out)
		}
		broken.Store(false)
		time.Sleep(10 * time.Second)
		assert.Regexp(t, `(?m)^hang .+ ok$`, f.run("jobs").out)
		time.Sleep(10 * time.Second)
		assert.Regexp(t, `(?m)^hang .+, 1 run .+ ok$`, f.run("jobs").out)
	})
}

// LAST of a job that follows another is the latest fire that was skipped, too.
func TestScreens_ShowTheLastSkippedFireOfAFollower(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
		bad := executor.HandlerFunc(func(context.Context, *executor.Run) error { return errors.New("no such table") })
		f.start("web-1", nil,
			executor.Job{Name: "fails", Schedule: schedule.Every(time.Minute), Handler: bad},
			executor.Job{Name: "works", Schedule: schedule.Every(time.Minute), Handler: ok},
			executor.Job{Name: "follow", Schedule: schedule.AfterJob("fails"), Shards: 2, Handler: ok},
			executor.Job{Name: "go-on", Schedule: schedule.AfterJob("works"), Shards: 2, Handler: ok},
		)
		time.Sleep(3*time.Minute + 30*time.Second)
		assert.Regexp(t, `(?m)^follow +after fails +- +3\ds ago +2 +0/0/6 +ok$`, f.run("jobs").out)
		assert.Regexp(t, `(?m)^go-on +after works +- +3\ds ago +2 +6/0/0 +ok$`, f.run("jobs").out)
	})
}

// After an override of the number of shards, lists have that of the newest definition at once.
func TestScreens_ShowTheShardsOfTheNewestDefinition(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, executor.Job{Name: "six", Schedule: schedule.Every(6 * time.Second), Shards: 2, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
			return nil
		})})
		time.Sleep(10 * time.Second)
		require.Zero(t, f.run("override six shards=4 --yes").code)
		time.Sleep(30 * time.Second)
		assert.Regexp(t, `(?m)^six .+ ago +4 `, f.run("jobs").out)
		require.Zero(t, f.run("override six --clear --yes").code)
		for range 20 {
			time.Sleep(time.Second)
			assert.Regexp(t, `(?m)^six .+ +2(, \d run)? +\d+/0/0 +ok$`, f.run("jobs").out)
			assert.Regexp(t, `(?m)^  shards +2$`, f.run("job six").out)
		}
	})
}
