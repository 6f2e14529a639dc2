package rotatest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

func TestSleep(t *testing.T) {
	t.Run("lets begin what is due at its end", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 100, takes(time.Minute)))
			f.SleepUntil(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC))
			require.Len(t, f.Runs("job"), 100)
			f.Sleep(time.Hour)
			require.Len(t, f.Runs("job"), 200)
		})
	})

	t.Run("until what has passed fails the test", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.SleepUntil(time.Now().Add(-time.Second)) })
		require.Equal(t, []string{"rotatest: sleep until 1999-12-31 23:59:59: it is 2000-01-01 00:00:00"}, said)
	})
}

func TestNextFire(t *testing.T) {
	t.Run("is that of the schedule, and handlers have been called", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			schedule := schedule.Cron("30 3 * * sun,mon").In("Asia/Shanghai")
			f.Start("a", executor.Job{Name: "job", Schedule: schedule, Shards: 3, Handler: takes(time.Second)})
			for n := range 2 {
				want, err := schedule.Next(time.Now(), 1)
				require.NoError(t, err)
				fire := f.NextFire("job")
				require.True(t, want[0].Equal(fire))
				require.Equal(t, fire, time.Now().UTC().Round(0))
				require.Equal(t, fire, fire.UTC())
				require.Len(t, f.Runs("job"), 3*(n+1))
			}
		})
	})

	t.Run("waits for replies that take their time", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Server().Delay("a", 20*time.Millisecond, 30*time.Millisecond)
			f.Start("a", every(time.Hour, 3, takes(time.Second)))
			fire := f.NextFire("job")
			require.Len(t, f.Runs("job"), 3)
			require.Positive(t, time.Since(fire))
			f.Server().Delay("a", 0, 0)
		})
	})

	t.Run("does not wait for shards that are busy, paused or offered by nobody", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			at := func() bool { return f.NextFire("job").Equal(time.Now()) }
			e := f.Start("a", every(time.Hour, 1, takes(90*time.Minute)))
			require.True(t, at())
			require.True(t, at())
			require.Len(t, f.Runs("job"), 1)
			require.NoError(t, e.Operator().Pause(f.T().Context(), "job"))
			f.Sleep(time.Hour)
			require.True(t, at())
			require.Len(t, f.Runs("job"), 1)
			f.Stop("a")
			require.True(t, at())
		})
	})

	t.Run("goes by the newest definition", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 1, takes(0))
			f.Start("a", job)
			job.Schedule, job.Revision = schedule.Every(10*time.Minute), 1
			f.Register("a", job)
			f.Sleep(0)
			require.Equal(t, 10, f.NextFire("job").Minute())
		})
	})

	t.Run("fails the test if there is none", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.NextFire("job") })
		require.Equal(t, []string{`rotatest: next fire of "job": unknown job`}, said)
		said = failures(t, func(f *Fleet) {
			f.Start("a", executor.Job{Name: "job", Handler: takes(0)})
			f.NextFire("job")
		})
		require.Equal(t, []string{`rotatest: next fire of "job": there is none`}, said)
	})
}

func TestTrigger(t *testing.T) {
	t.Run("returns its number when handlers have been called", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := executor.Job{Name: "job", Shards: 4, Handler: takes(time.Minute)}
			f.Start("a", job)
			f.Start("b", job)
			begin := time.Now()
			n := f.Trigger("job", executor.Trigger{Param: "now", Shards: []int{1, 3}})
			require.Zero(t, time.Since(begin))
			runs := f.Runs("job")
			require.Len(t, runs, 2)
			for _, r := range runs {
				require.Equal(t, n, r.Trigger)
				require.Equal(t, "now", r.Param)
				require.Zero(t, r.End)
			}
			f.Settle()
			require.Greater(t, f.Trigger("job", executor.Trigger{}), n)
			require.Len(t, f.Runs("job"), 6)
		})
	})

	t.Run("goes by a process that is running", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := executor.Job{Name: "job", Handler: takes(time.Minute)}
			f.Start("a", job)
			f.Start("b", job)
			f.Start("c", job)
			f.Crash("a")
			heal := f.Partition("b")
			f.Settle()
			f.Trigger("job", executor.Trigger{})
			require.Equal(t, "c", f.Runs("job")[0].Instance)
			heal()
		})
	})

	t.Run("fails the test if it cannot be made", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.Trigger("job", executor.Trigger{}) })
		require.Equal(t, []string{`rotatest: trigger "job": no process is running and not cut off`}, said)
		said = failures(t, func(f *Fleet) { f.Start("a"); f.Trigger("job", executor.Trigger{}) })
		require.Equal(t, []string{`rotatest: trigger "job": unknown job`}, said)
	})
}

func TestTrigger_FailsTheTestIfTheRegistryIsSilent(t *testing.T) {
	said := failures(t, func(f *Fleet) {
		f.Start("a", executor.Job{Name: "job", Handler: takes(0)})
		defer f.Server().Pause()()
		f.Trigger("job", executor.Trigger{})
	})
	require.Len(t, said, 1)
	require.Contains(t, said[0], `rotatest: trigger "job": `)
}

func TestSettle(t *testing.T) {
	t.Run("of what is at rest takes no time", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Settle()
			f.Start("a", every(time.Hour, 3, takes(0)))
			begin := time.Now()
			f.Settle()
			require.Zero(t, time.Since(begin))
		})
	})

	t.Run("waits for runs and for their ends to be on record", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(12*time.Hour, 3, takes(5*time.Hour)))
			fire := f.NextFire("job")
			f.Settle()
			require.GreaterOrEqual(t, time.Since(fire), 5*time.Hour)
			require.Less(t, time.Since(fire), 5*time.Hour+time.Minute)
			for _, r := range f.Runs("job") {
				require.NoError(t, r.Err)
				require.False(t, r.End.IsZero())
			}
			for _, e := range f.Server().Dump() {
				require.NotContains(t, string(e.Value), `"running"`)
			}
		})
	})

	t.Run("waits for fires that are owed", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := executor.Job{Name: "job", Schedule: schedule.Cron("0 1,2 * * *"), Handler: takes(110 * time.Minute)}
			e := f.Start("a", job)
			f.NextFire("job")
			f.NextFire("job")
			f.Sleep(time.Second)
			require.NoError(t, e.Operator().Pause(f.T().Context(), "job"))
			f.Settle()
			require.Len(t, f.Runs("job"), 1, "nothing of a paused job is due")
			require.NoError(t, e.Operator().Resume(f.T().Context(), "job"))
			f.Settle()
			require.Len(t, f.Runs("job"), 2)
		})
	})

	t.Run("waits for triggers whose shards are busy", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", executor.Job{Name: "job", Handler: takes(time.Minute)})
			for range 3 {
				f.Trigger("job", executor.Trigger{})
			}
			require.Len(t, f.Runs("job"), 1)
			f.Settle()
			require.Len(t, f.Runs("job"), 3)
			slow(f, "a")
			begin := time.Now()
			f.Trigger("job", executor.Trigger{})
			require.Len(t, f.Runs("job"), 4)
			require.Less(t, time.Since(begin), time.Second)
		})
	})

	t.Run("waits for shards that move", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 4, takes(2*time.Second))
			f.Start("a", job)
			f.NextFire("job")
			slow(f, "a", "b")
			f.Start("b", job)
			require.Equal(t, map[string]int{"a": 4}, shares(f))
			f.Settle()
			require.Equal(t, map[string]int{"a": 2, "b": 2}, shares(f))
			require.Zero(t, plan(f).Frozen)
		})
	})

	t.Run("waits until a crash has been dealt with, though nothing ran", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 4, takes(time.Minute))
			f.Start("a", job)
			f.Start("b", job)
			f.Crash("b") // a leads
			f.Settle()
			require.Equal(t, map[string]int{"a": 4}, shares(f))
		})
	})

	t.Run("waits until what a crash interrupted has been made again", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(2*time.Second))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			f.Server().Delay("a", 300*time.Millisecond, 300*time.Millisecond)
			f.Crash("b")
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 3)
			require.NoError(t, runs[2].Err)
		})
	})

	t.Run("waits until a pause and a resume have taken effect", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			slow(f, "a")
			e := f.Start("a", every(time.Second, 1, takes(0)))
			require.NoError(t, e.Operator().Pause(f.T().Context(), "job"))
			f.Settle()
			require.True(t, plan(f).Paused)
			require.NoError(t, e.Operator().Resume(f.T().Context(), "job"))
			f.Settle()
			require.False(t, plan(f).Paused)
			fire := f.NextFire("job")
			require.Len(t, where(f.Runs("job"), fire), 1)
		})
	})

	t.Run("waits until disabling and enabling have taken effect", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			slow(f, "a", "b")
			ctx := f.T().Context()
			e := f.Start("a", every(time.Minute, 4, takes(0)))
			f.Start("b", every(time.Minute, 4, takes(0)))
			shards := operator.Scope{Job: "job", Shards: []int{0, 1}}
			require.NoError(t, e.Operator().Disable(ctx, shards))
			f.Settle()
			require.Equal(t, "0-1", plan(f).Disabled.String())
			fire := f.NextFire("job")
			require.Len(t, where(f.Runs("job"), fire), 2)
			require.NoError(t, e.Operator().Enable(ctx, shards))
			require.NoError(t, e.Operator().Disable(ctx, operator.Scope{Instances: []string{"b"}}))
			f.Settle()
			require.Zero(t, plan(f).Disabled)
			require.Equal(t, map[string]int{"a": 4}, shares(f))
			fire = f.NextFire("job")
			require.Len(t, where(f.Runs("job"), fire), 4)
			require.NoError(t, e.Operator().Disable(ctx, operator.Scope{Job: "job", Instances: []string{"a"}}))
			f.Settle()
			require.Empty(t, shares(f))
		})
	})

	t.Run("does not wait for what is disabled", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Minute, 2, takes(30*time.Second))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			e := f.Start("c")
			require.NoError(t, e.Operator().Disable(f.T().Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
			f.Settle()
			f.Sleep(5 * time.Minute)
			f.Settle()
			require.Len(t, f.Runs("job"), 2, "fires are passed over")
			require.NoError(t, e.Operator().Enable(f.T().Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
			f.NextFire("job")
			f.Crash("b")
			require.NoError(t, e.Operator().Disable(f.T().Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
			_, err := e.Trigger(f.T().Context(), "job", executor.Trigger{})
			require.NoError(t, err)
			begin := time.Now()
			f.Settle()
			f.Sleep(5 * time.Minute)
			f.Settle()
			require.Less(t, time.Since(begin), 7*time.Minute)
			require.Len(t, f.Runs("job"), 4, "re-runs wait, with what follows them, and triggers")
			require.NoError(t, e.Operator().Enable(f.T().Context(), operator.Scope{Job: "job", Shards: []int{0, 1}}))
			f.Settle()
			require.Greater(t, len(f.Runs("job")), 4+1+2)
		})
	})

	t.Run("does not wait for those who are cut off, but for their return", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 4, takes(time.Minute)))
			heal := f.Partition("a")
			f.Sleep(time.Minute)
			begin := time.Now()
			f.Settle()
			require.Zero(t, time.Since(begin))
			heal()
			f.Settle()
			require.Positive(t, time.Since(begin))
			require.Less(t, time.Since(begin), time.Minute)
			require.Equal(t, map[string]int{"a": 4}, shares(f))
		})
	})

	t.Run("waits until a new definition counts", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Second, 1, takes(0))
			f.Start("a", job)
			job.Shards, job.Revision = 3, 1
			slow(f, "a")
			f.Register("a", job)
			f.Settle()
			require.Equal(t, map[string]int{"a": 3}, shares(f))
			fire := f.NextFire("job")
			require.Len(t, where(f.Runs("job"), fire), 3)
		})
	})

	t.Run("does not wait for what nobody is there to do", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			f.NextFire("job")
			f.Crash("a")
			f.Sleep(3 * time.Hour)
			begin := time.Now()
			f.Settle()
			f.Start("b")
			f.Settle()
			require.Less(t, time.Since(begin), time.Minute)
		})
	})

	t.Run("does not wait for zombies of a crash", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 1, ignores(2*time.Hour)))
			f.NextFire("job")
			crash := time.Now()
			f.Crash("a")
			f.Settle()
			require.Less(t, time.Since(crash), time.Minute)
			require.Zero(t, f.Runs("job")[0].End)
		})
	})

	t.Run("waits for a handler that ignores that its session is lost", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(12*time.Hour, 1, ignores(2*time.Hour)))
			f.NextFire("job")
			heal := f.Partition("a")
			f.Sleep(time.Minute)
			heal()
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 2)
			for _, r := range runs {
				require.False(t, r.End.IsZero())
			}
			require.False(t, runs[1].Start.Before(runs[0].End), "in one process they do not overlap")
		})
	})

	t.Run("fails the test and says what does not come to rest", func(t *testing.T) {
		said := failures(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(150*time.Minute)))
			f.NextFire("job")
			f.Settle()
		})
		require.Len(t, said, 1)
		lines := strings.Split(said[0], "\n\t")
		require.Equal(t, "rotatest: not settled after 24h0m0s:", lines[0])
		assert.Regexp(t, `^run rotatest/default/job/0/2000-01-0.*Z/1 has been running on a since 2000-01-0`, lines[1])
		assert.Regexp(t, `^run rotatest/default/job/1/`, lines[2])
		assert.Regexp(t, `^job/0-1: the run for 2000-01-0.* is on record as running on a$`, lines[3])
		assert.Regexp(t, `^job/0-1: have not claimed the fire of 2000-01-0`, lines[4])
	})
}
