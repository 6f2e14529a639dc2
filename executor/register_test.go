package executor_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

func TestRegister(t *testing.T) {
	registering := func(t *testing.T, f *fleet) (*executor.Executor, *bytes.Buffer) {
		t.Helper()
		var log bytes.Buffer
		e, err := executor.New(f.server.Client("a"), "test", executor.Options{Instance: "a", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		f.members = append(f.members, e)
		require.NoError(t, e.Register(f.job(2, takes(0))))
		require.Empty(t, log.String())
		return e, &log
	}
	replaced := "job registered again; the newer definition replaces the earlier one"
	bubble(t, "of a name that is registered logs in what the definitions differ", func(t *testing.T, f *fleet) {
		e, log := registering(t, f)
		job := f.job(3, takes(0))
		job.Schedule = schedule.Every(time.Hour)
		require.NoError(t, e.Register(job))
		assert.Contains(t, log.String(), "level=WARN")
		assert.Contains(t, log.String(), replaced)
		assert.Contains(t, log.String(), "job=job")
		assert.Contains(t, log.String(), `shards: 2 before, 3 now`)
		assert.Contains(t, log.String(), `every 1h`)
	})
	bubble(t, "of an equal definition logs nothing", func(t *testing.T, f *fleet) {
		e, log := registering(t, f)
		require.NoError(t, e.Register(f.job(2, takes(time.Second))))
		assert.Empty(t, log.String())
	})
	bubble(t, "copies the jobs: a later change of a map in one has no effect", func(t *testing.T, f *fleet) {
		e, log := registering(t, f)
		job := f.job(2, takes(0))
		job.Name, job.ShardParams = "other", map[int]string{0: "x"}
		require.NoError(t, e.Register(job))
		job.ShardParams[0] = "y"
		require.Empty(t, log.String())
		require.NoError(t, e.Register(job))
		assert.Contains(t, log.String(), replaced)
		assert.Contains(t, log.String(), "job=other")
	})
	bubble(t, "of a withdrawn job logs nothing", func(t *testing.T, f *fleet) {
		e, log := registering(t, f)
		require.NoError(t, e.Withdraw(t.Context(), "job"))
		require.NoError(t, e.Register(f.job(3, takes(0))))
		assert.Empty(t, log.String())
		require.NoError(t, e.Register(f.job(4, takes(0))))
		assert.Contains(t, log.String(), replaced, "it has been registered again since")
	})
	bubble(t, "of a higher revision logs a warning before Start alone", func(t *testing.T, f *fleet) {
		e, log := registering(t, f)
		job := f.job(3, takes(0))
		job.Revision = 1
		require.NoError(t, e.Register(job))
		assert.Contains(t, log.String(), replaced)
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		log.Reset()
		job.Revision, job.Shards = 2, 4
		require.NoError(t, e.Register(job))
		synctest.Wait()
		assert.NotContains(t, log.String(), replaced, "that is how a definition is replaced")
		job.Shards = 5
		require.NoError(t, e.Register(job))
		synctest.Wait()
		assert.Contains(t, log.String(), replaced)
	})
}

// Programs that read their jobs from elsewhere register them one by one.
func TestRegister_TakesNoLongerForManyJobsThanForFew(t *testing.T) {
	for name, schedule := range map[string]func(n int) schedule.Schedule{
		"jobs apart": func(int) schedule.Schedule { return schedule.Every(time.Minute) },
		"a chain": func(n int) schedule.Schedule {
			if n == 1 {
				return schedule.Every(time.Minute)
			}
			return schedule.AfterJob(fmt.Sprintf("job-%05d", n-1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := executor.New(memory.New().Client("a"), "test", executor.Options{Instance: "a"})
			require.NoError(t, err)
			registered := 0
			bytesFor := func(jobs int) uint64 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for range jobs {
					registered++
					name := fmt.Sprintf("job-%05d", registered)
					require.NoError(t, e.Register(executor.Job{Name: name, Schedule: schedule(registered), Handler: takes(0)}))
				}
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc
			}
			first := bytesFor(500)
			bytesFor(3500)
			last := bytesFor(500)
			t.Logf("500 jobs: %d bytes; after 4,000: %d bytes", first, last)
			assert.LessOrEqual(t, last, 3*first)
		})
	}
}
