package rotatest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// TestDeploymentInTheMiddleOfANightlyRun replaces each instance, one after the other, while all
// eight shards of a job of three hours run.
func TestDeploymentInTheMiddleOfANightlyRun(t *testing.T) {
	nightly := executor.Job{
		Name: "nightly", Schedule: schedule.Cron("0 3 * * *"), Shards: 8, Handler: takes(3 * time.Hour),
	}
	deploy := map[string]func(f *rotatest.Fleet, old, new string){
		"stops before starts": func(f *rotatest.Fleet, old, new string) {
			f.Stop(old)
			f.Start(new, nightly)
		},
		"starts before stops": func(f *rotatest.Fleet, old, new string) {
			f.Start(new, nightly)
			f.Stop(old)
		},
	}
	for how, replace := range deploy {
		promise(t, "that "+how+" has each shard's work done once, none lost and none counted as failed", func(t *testing.T, f *rotatest.Fleet) {
			f.Start("a1", nightly)
			f.Start("b1", nightly)
			f.NextFire("nightly")
			time.Sleep(time.Hour)
			replace(f, "a1", "a2")
			time.Sleep(10 * time.Minute)
			replace(f, "b1", "b2")
			f.Settle()
			done, begun := map[int]int{}, map[int]int{}
			for _, r := range f.Runs("nightly") {
				begun[r.Shard]++
				if r.Err == nil {
					done[r.Shard]++
				}
			}
			assert.Len(t, done, 8)
			for shard, n := range done {
				assert.Equal(t, 1, n, "shard %d", shard)
				assert.GreaterOrEqual(t, begun[shard], 2, "shard %d", shard)
			}
			counts := countsOf(t, f, "nightly")
			assert.EqualValues(t, 8, counts.Succeeded)
			assert.Zero(t, counts.Failed+counts.Lost+counts.Skipped, "%+v", counts)
		})
	}
	promise(t, "loses no trigger", func(t *testing.T, f *rotatest.Fleet) {
		job := executor.Job{Name: "rebuild", Shards: 2, Handler: takes(time.Hour)}
		f.Start("a", job)
		f.Trigger("rebuild", executor.Trigger{Param: "all"})
		time.Sleep(time.Minute)
		f.Stop("a")
		f.Start("b", job)
		f.Settle()
		runs := completed(f.Runs("rebuild"))
		assert.Len(t, runs, 2)
		for _, r := range runs {
			assert.Equal(t, "all", r.Param)
		}
	})
}

func countsOf(t *testing.T, f *rotatest.Fleet, job string) operator.Counts {
	t.Helper()
	o, err := operator.New(f.Server().Client("console"), rotatest.Namespace, "")
	require.NoError(t, err)
	st, err := o.Status(t.Context(), job)
	require.NoError(t, err)
	return st.Counts
}
