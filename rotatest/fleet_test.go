package rotatest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

func TestStart(t *testing.T) {
	t.Run("returns when the shards have been dealt", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 4, takes(time.Second))
			f.Start("a", job)
			require.Equal(t, map[string]int{"a": 4}, shares(f))
			f.Start("b", job)
			require.Equal(t, map[string]int{"a": 2, "b": 2}, shares(f))
			f.Stop("b")
			f.Stop("a")
			require.Empty(t, shares(f))
			slow(f, "c")
			f.Start("c", job)
			require.Equal(t, map[string]int{"c": 4}, shares(f))
		})
	})

	t.Run("returns the executor of that instance", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			e := f.Start("a", every(time.Hour, 1, takes(0)))
			require.Equal(t, "a", e.Instance())
			require.NoError(t, e.Operator().Pause(f.T().Context(), "job"))
			f.Settle()
			f.NextFire("job")
			require.Empty(t, f.Runs("job"))
		})
	})

	t.Run("uses the options set before it", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			var log strings.Builder
			f.Options = executor.Options{
				SessionTTL: time.Minute, Workers: 1, Group: "night",
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}
			f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			f.Options = executor.Options{Group: "night", SessionTTL: time.Minute}
			f.Start("b")
			f.NextFire("job")
			require.Len(t, f.Runs("job"), 1, "one worker")
			crash := time.Now()
			f.Crash("a")
			f.Start("a")
			require.Greater(t, time.Since(crash), 40*time.Second)
			require.LessOrEqual(t, time.Since(crash), time.Minute+time.Second)
			require.Contains(t, log.String(), "group=night")
			require.Contains(t, log.String(), "instance=a")
			require.NotContains(t, log.String(), "instance=b")
		})
	})

	t.Run("lets no run wait for a CPU", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 500, takes(time.Minute)))
			f.NextFire("job")
			require.Len(t, f.Runs("job"), 500)
		})
	})

	t.Run("starts another process of an instance that was stopped", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 1, takes(time.Minute)))
			first := f.NextFire("job")
			f.Stop("a")
			f.Start("a", every(time.Hour, 1, takes(time.Minute)))
			second := f.NextFire("job")
			require.Equal(t, time.Hour, second.Sub(first))
			attempts := map[string]int{}
			for _, r := range f.Runs("job") {
				attempts[clock(r.FireTime)]++
			}
			require.Equal(t, map[string]int{clock(first): 2, clock(second): 1}, attempts)
		})
	})

	t.Run("starts another process of an instance that crashed when its session has expired", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 1, takes(time.Minute)))
			fire := f.NextFire("job")
			f.Sleep(time.Second)
			f.Crash("a")
			crash := time.Now()
			f.Start("a", every(time.Hour, 1, takes(time.Minute)))
			require.Greater(t, time.Since(crash), 6*time.Second)
			require.LessOrEqual(t, time.Since(crash), 11*time.Second)
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 2)
			require.Equal(t, 2, runs[1].Attempt)
			require.True(t, runs[1].FireTime.Equal(fire))
			require.NoError(t, runs[1].Err)

			f.Server().Partition("a")() // the one that is dead: nobody minds
			defer f.Server().Partition("a#2")()
			f.Sleep(10 * time.Second)
			require.Empty(t, f.Server().Counts("a").Sessions)
			require.Empty(t, f.Server().Counts("a#2").Sessions)
		})
	})

	for name, c := range map[string]struct {
		start func(*Fleet)
		want  string
	}{
		"of a running instance": {func(f *Fleet) { f.Start("a"); f.Start("a") }, "start a: it has been started"},
		"without a name":        {func(f *Fleet) { f.Start("") }, "needs a name"},
		"under an invalid name": {func(f *Fleet) { f.Start("a/b") }, "slash"},
		"of an invalid job":     {func(f *Fleet) { f.Start("a", executor.Job{Name: "job"}) }, "Handler: is nil"},
		"of a nil function": {
			func(f *Fleet) { f.Start("a", executor.Job{Name: "job", Handler: executor.HandlerFunc(nil)}) },
			"Handler: is nil",
		},
		"of a handler with problems": {
			func(f *Fleet) { f.Start("a", executor.Job{Name: "job", Handler: handler.Command("/no/such/program")}) },
			"Handler: Path: ",
		},
		"in an invalid group": {func(f *Fleet) { f.Options.Group = "~"; f.Start("a") }, "group"},
	} {
		t.Run(name+" fails the test", func(t *testing.T) {
			after := false
			said := failures(t, func(f *Fleet) {
				c.start(f)
				after = true
			})
			require.Len(t, said, 1)
			require.Contains(t, said[0], c.want)
			require.False(t, after)
		})
	}
}

func TestRegister(t *testing.T) {
	t.Run("records the runs of jobs that come later", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a")
			f.Register("a", every(time.Hour, 2, takes(0)))
			f.NextFire("job")
			require.Len(t, f.Runs("job"), 2)
		})
	})

	t.Run("brings a new revision", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(0))
			f.Start("a", job)
			job.Shards, job.Revision = 5, 1
			slow(f, "a")
			f.Register("a", job)
			f.Settle()
			require.Equal(t, map[string]int{"a": 5}, shares(f))
			f.NextFire("job")
			require.Len(t, f.Runs("job"), 5)
		})
	})

	t.Run("fails the test if there is no such process or job", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.Register("a") })
		require.Equal(t, []string{"rotatest: register jobs with a: no process of that name is running"}, said)
		said = failures(t, func(f *Fleet) { f.Start("a"); f.Register("a", executor.Job{}) })
		require.Len(t, said, 1)
		require.Contains(t, said[0], "register jobs with a: invalid job")
	})
}

func TestStop(t *testing.T) {
	t.Run("lets runs end and hands over", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(20*time.Second))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			f.Stop("a")
			for _, r := range f.Runs("job") {
				require.NoError(t, r.Err)
				require.True(t, r.Instance == "b" || !r.End.IsZero())
			}
			fire := f.NextFire("job")
			require.Equal(t, map[int]string{0: "b", 1: "b"}, where(f.Runs("job"), fire))
		})
	})

	t.Run("ends runs that take longer than the drain", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 1, takes(time.Minute)))
			f.NextFire("job")
			f.Stop("a")
			runs := f.Runs("job")
			require.ErrorIs(t, runs[0].Err, executor.ErrDraining)
			require.Equal(t, 20*time.Second, runs[0].End.Sub(runs[0].Start))
		})
	})

	t.Run("fails the test if a handler does not return", func(t *testing.T) {
		said := failures(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 1, ignores(10*time.Minute)))
			f.NextFire("job")
			f.Stop("a")
		})
		require.Len(t, said, 1)
		require.Contains(t, said[0], "stop a: 1 run ignored the end of the context: rotatest/default/job/0/2000-01-01T01:00:00Z/1")
	})

	t.Run("fails the test if there is no such process", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.Start("a"); f.Stop("a"); f.Stop("a") })
		require.Equal(t, []string{"rotatest: stop a: no process of that name is running"}, said)
	})
}

func TestCrash(t *testing.T) {
	t.Run("ends contexts at once and keeps the shards until the session has expired", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(time.Minute))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			f.Crash("a")
			crash := time.Now()
			runs := f.Runs("job")
			require.Len(t, runs, 2)
			dead := runs[slices.IndexFunc(runs, func(r Record) bool { return r.Instance == "a" })]
			require.Equal(t, crash, dead.End)
			require.ErrorIs(t, dead.Err, executor.ErrSessionLost)

			f.Settle()
			runs = f.Runs("job")
			require.Len(t, runs, 3)
			require.Equal(t, dead.Key, runs[2].Key)
			require.Equal(t, 2, runs[2].Attempt)
			require.Equal(t, executor.Failover, runs[2].Reason)
			require.Greater(t, runs[2].Fence, dead.Fence)
			require.Greater(t, runs[2].Start.Sub(crash), 6*time.Second)
			require.LessOrEqual(t, runs[2].Start.Sub(crash), 10*time.Second+100*time.Millisecond)
		})
	})

	t.Run("leaves handlers that ignore it as zombies that cannot write", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			var commits []error
			job := every(time.Hour, 1, executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				time.Sleep(time.Minute)
				_, err := r.Commit(context.WithoutCancel(ctx), registry.Create("mine", nil))
				commits = append(commits, err)
				return nil
			}))
			f.Start("a", job)
			f.Start("b")
			f.NextFire("job")
			f.Crash("a")
			f.Register("b", job)
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 2)
			require.Equal(t, time.Minute, runs[0].End.Sub(runs[0].Start))
			require.True(t, runs[1].Start.Before(runs[0].End), "they overlap")
			require.Len(t, commits, 2)
			require.ErrorIs(t, commits[0], executor.ErrRunOver)
			require.NoError(t, commits[1])
		})
	})

	t.Run("of several at once hands over to those who are left", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 6, takes(time.Minute))
			for _, name := range []string{"a", "b", "c"} {
				f.Start(name, job)
			}
			f.NextFire("job")
			f.Crash("a")
			f.Crash("b")
			f.Settle()
			again := 0
			for _, r := range f.Runs("job") {
				if r.Attempt == 2 {
					assert.Equal(t, "c", r.Instance)
					again++
				}
			}
			require.Equal(t, 4, again)
		})
	})

	t.Run("of all loses nothing once one is back", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(time.Minute))
			f.Start("a", job)
			fire := f.NextFire("job")
			f.Crash("a")
			f.Sleep(24 * time.Hour)
			require.Len(t, f.Runs("job"), 2)
			f.Start("b", job)
			f.Settle()
			runs := f.Runs("job")
			require.Len(t, runs, 6)
			require.True(t, runs[2].FireTime.Equal(fire))
			require.Equal(t, 2, runs[2].Attempt)
			require.Equal(t, executor.Misfire, runs[5].Reason)
		})
	})

	t.Run("fails the test if there is no such process", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.Start("a"); f.Crash("a"); f.Crash("a") })
		require.Equal(t, []string{"rotatest: crash a: no process of that name is running"}, said)
	})

	t.Run("ends the log", func(t *testing.T) {
		var text strings.Builder
		life, end := context.WithCancel(t.Context())
		log := slog.New(gatedLog{slog.NewTextHandler(&text, nil), func() bool { return life.Err() == nil }}).WithGroup("g").With("x", 1)
		log.Info("alive")
		end()
		log.Info("dead")
		require.Contains(t, text.String(), "msg=alive g.x=1")
		require.NotContains(t, text.String(), "dead")
	})

	t.Run("leaves nothing that says it is alive", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			var log strings.Builder
			f.Options.Logger = slog.New(slog.NewTextHandler(&log, nil)).With("x", 1).WithGroup("g")
			f.Start("a", every(time.Hour, 1, ignores(time.Minute)))
			f.NextFire("job")
			f.Crash("a")
			said := log.String()
			f.Server().ResetCounts()
			f.Sleep(time.Hour)
			require.Equal(t, said, log.String())
			n := f.Server().Counts("")
			n.Watches = 0 // the server has not been told of their end
			require.Zero(t, n)
		})
	})
}

func TestPartition(t *testing.T) {
	t.Run("runs until the session is lost, then elsewhere, and joins again", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			job := every(time.Hour, 2, takes(time.Minute))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			cut := time.Now()
			heal := f.Partition("a")
			f.Sleep(20 * time.Second)
			runs := f.Runs("job")
			require.Len(t, runs, 3)
			lost := runs[slices.IndexFunc(runs, func(r Record) bool { return r.Instance == "a" })]
			require.ErrorIs(t, lost.Err, executor.ErrSessionLost)
			require.Greater(t, lost.End.Sub(cut), 5*time.Second)
			require.False(t, runs[2].Start.Before(lost.End))
			require.Equal(t, "b", runs[2].Instance)

			heal()
			f.Settle()
			require.Equal(t, map[string]int{"a": 1, "b": 1}, shares(f))
			fire := f.NextFire("job")
			require.Len(t, where(f.Runs("job"), fire), 2)
		})
	})

	t.Run("is healed when the test ends", func(t *testing.T) {
		var fleet *Fleet
		require.Empty(t, failures(t, func(f *Fleet) {
			fleet = f
			f.Start("a", every(time.Hour, 2, takes(0)))
			f.Partition("a")
			f.Sleep(90 * time.Minute)
			require.Empty(t, f.Runs("job"))
		}))
		require.Len(t, fleet.Runs("job"), 2)
	})

	t.Run("fails the test if there is no such process", func(t *testing.T) {
		said := failures(t, func(f *Fleet) { f.Partition("a") })
		require.Equal(t, []string{"rotatest: partition a: no process of that name is running"}, said)
	})
}

func TestRuns(t *testing.T) {
	t.Run("are in order of start with what the handler got and gave", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			errOdd := errors.New("odd")
			job := executor.Job{
				Name: "job", Schedule: schedule.Every(time.Hour), Shards: 3, Param: "p", ShardParams: map[int]string{1: "one"},
				Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
					if r.Shard == 1 {
						time.Sleep(time.Second)
						return errOdd
					}
					return takes(time.Minute)(ctx, r)
				}),
			}
			f.Start("a", job)
			require.Empty(t, f.Runs("job"))
			fire := f.NextFire("job")
			f.Sleep(10 * time.Second)
			runs := f.Runs("job")
			require.Len(t, runs, 3)
			for shard, r := range runs {
				require.Equal(t, shard, r.Shard)
				require.Equal(t, fire, r.FireTime)
				require.Equal(t, fire, r.Start.UTC().Round(0))
				require.Equal(t, "a", r.Instance)
				require.Equal(t, "p", r.Param)
			}
			require.Equal(t, "one", runs[1].ShardParam)
			require.Equal(t, errOdd, runs[1].Err)
			require.Equal(t, time.Second, runs[1].End.Sub(runs[1].Start))
			require.Zero(t, runs[0].End)
			f.Settle()
			require.Equal(t, time.Minute, f.Runs("job")[0].End.Sub(fire))
			f.NextFire("job")
			require.Len(t, f.Runs("job"), 6)
			require.Empty(t, f.Runs("other"))
		})
	})

	t.Run("have the result of the middleware", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			late := func(next executor.Handler) executor.Handler {
				return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
					err := next.Handle(ctx, r)
					time.Sleep(time.Second)
					return fmt.Errorf("late: %w", err)
				})
			}
			f.Options.Middleware = []executor.Middleware{late}
			job := every(time.Hour, 1, executor.HandlerFunc(func(context.Context, *executor.Run) error { return errors.New("odd") }))
			job.Middleware = []executor.Middleware{late}
			f.Start("a", job)
			f.NextFire("job")
			f.Settle()
			run := f.Runs("job")[0]
			require.EqualError(t, run.Err, "late: late: odd")
			require.Equal(t, 2*time.Second, run.End.Sub(run.Start))
		})
	})

	t.Run("tell of panics and of Goexit", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			var log strings.Builder
			f.Options.Logger = slog.New(slog.NewTextHandler(&log, nil))
			f.Start("a", every(time.Hour, 2, executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
				if r.Shard == 0 {
					panic("boo")
				}
				runtime.Goexit()
				return nil
			})))
			f.NextFire("job")
			f.Settle()
			runs := f.Runs("job")
			var p *executor.PanicError
			require.ErrorAs(t, runs[0].Err, &p)
			require.Equal(t, "boo", p.Value)
			require.Contains(t, string(p.Stack), "TestRuns")
			require.Contains(t, log.String(), "handler panicked: boo", "the executor has been told")
			require.ErrorIs(t, runs[1].Err, errGoexit)
		})
	})
}

func TestT(t *testing.T) {
	t.Run("cleans up while the fleet is running", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			e := f.Start("a", every(time.Hour, 1, takes(0)))
			f.T().Cleanup(func() {
				require.Equal(t, "a", e.Instance())
				f.Trigger("job", executor.Trigger{})
				f.Settle()
				assert.Len(t, f.Runs("job"), 1)
			})
		})
	})

	t.Run("has a context of the bubble", func(t *testing.T) {
		Run(t, func(f *Fleet) {
			ctx, cancel := context.WithTimeout(f.T().Context(), 100*time.Hour)
			defer cancel()
			<-ctx.Done()
			require.Equal(t, 2000, time.Now().UTC().Year())
		})
	})
}
