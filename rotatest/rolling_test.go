package rotatest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// TestRollingDeployment replaces the binaries of a fleet one by one. rotatest.Run itself
// fails it if a fire is lost or a shard runs twice at once.
func TestRollingDeployment(t *testing.T) {
	named := func(name string, revision, shards int) executor.Job {
		return executor.Job{
			Name: name, Revision: revision, Schedule: schedule.Every(10 * time.Minute), Shards: shards, Handler: takes(time.Minute),
		}
	}
	before := []executor.Job{named("job", 1, 4), named("dropped", 1, 2)}
	after := []executor.Job{named("job", 2, 6), named("added", 1, 2)}
	names := []string{"a", "b", "c"}

	deploy := map[string]func(f *rotatest.Fleet, name string){
		"by stops and starts": func(f *rotatest.Fleet, name string) {
			f.Stop(name)
			f.Start(name, after...)
		},
		"by crashes and starts": func(f *rotatest.Fleet, name string) {
			f.Crash(name)
			f.Start(name, after...)
		},
	}
	for how, replace := range deploy {
		promise(t, how+" runs each fire once for each shard, by one definition, where its job is offered", func(t *testing.T, f *rotatest.Fleet) {
			for _, name := range names {
				f.Start(name, before...)
			}
			f.NextFire("job")
			f.Settle()
			last := map[string]time.Time{} // of the old binary of each name
			for _, name := range names {
				last[name] = time.Now()
				replace(f, name)
				f.NextFire("job")
				f.Settle()
			}
			fires := map[time.Time][]rotatest.Record{}
			for _, r := range completed(f.Runs("job")) {
				fires[r.FireTime] = append(fires[r.FireTime], r)
			}
			require.GreaterOrEqual(t, len(fires), 4)
			for at, runs := range fires {
				assert.Len(t, runs, runs[0].Shards, at)
				for _, r := range runs {
					assert.Equal(t, runs[0].Shards, r.Shards, at)
				}
			}
			for _, r := range f.Runs("dropped") {
				assert.True(t, r.Start.Before(last[r.Instance]), "%s runs what it does not offer", r.Instance)
			}
			for _, r := range f.Runs("added") {
				assert.True(t, r.Start.After(last[r.Instance]), "%s runs what it does not offer", r.Instance)
			}
			assert.NotEmpty(t, f.Runs("added"))
			newest := f.Runs("job")
			assert.Equal(t, 6, newest[len(newest)-1].Shards)
		})
	}
}
