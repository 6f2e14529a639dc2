package rotatest_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// TestElasticJob holds rota against the known flaws of Elastic-Job-Lite, by the numbers
// that docs/elastic-job.md gives them. What it says of each is what a user would see;
// rotatest.Run itself fails a test in which a fire is lost or a shard runs twice at once.
func TestElasticJob(t *testing.T) {
	// F1
	promise(t, "a failed run has ended: its shard fires again, and moves", func(t *testing.T, f *rotatest.Fleet) {
		bad := hourly(4, func(_ context.Context, r *executor.Run) error {
			if r.Shard == 3 {
				return errors.New("no such table")
			}
			return nil
		})
		f.Start("a", bad)
		f.NextFire("job")
		f.Settle()
		f.Start("b", bad)
		fire := f.NextFire("job")
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b", 3: "b"}, owners(runsOf(f, fire)))
	})

	// F2
	promise(t, "a crash repeats the runs that it ended, each once, and no other", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(9, slowOn("c")))
		}
		fire := f.NextFire("job")
		ended := byInstance(runsOf(f, fire))["c"]
		f.Crash("c")
		f.Settle()
		again := attempt(2, f.Runs("job"))
		assert.Equal(t, ended, shards(again))
		assert.Len(t, f.Runs("job"), 9+len(ended))
		assert.Len(t, runsOf(f, f.NextFire("job")), 9)
	})

	// F3
	promise(t, "a completed re-run is not repeated when its instance crashes too", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(9, slowOn("a")))
		}
		f.NextFire("job")
		f.Crash("a")
		f.Sleep(15 * time.Second) // its session has expired, its runs were made again and have ended
		again := attempt(2, f.Runs("job"))
		require.Len(t, again, 3)
		f.Crash("b") // before the leader has cleared away what was to be made again
		f.Settle()
		assert.Len(t, f.Runs("job"), 9+len(again))
	})

	// F4
	promise(t, "a cut shorter than the session fails no shard over", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", hourly(4, takes(time.Minute)))
		f.Start("b", hourly(4, takes(time.Minute)))
		fire := f.NextFire("job")
		for range 3 {
			heal := f.Partition("b")
			f.Sleep(5 * time.Second)
			heal()
			f.Sleep(2 * time.Second)
			f.Server().Restart()
		}
		f.Settle()
		assert.Len(t, f.Runs("job"), 4)
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b", 3: "b"}, owners(completed(runsOf(f, fire))))
	})

	// F5
	promise(t, "a cut leaves running shards on record, so that they do not move", func(t *testing.T, f *rotatest.Fleet) {
		longLast := hourly(4, func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 3 && r.Trigger == 0 {
				return sleep(ctx, 50*time.Minute)
			}
			return sleep(ctx, time.Minute)
		})
		f.Start("a", longLast)
		fire := f.NextFire("job")
		heal := f.Partition("a")
		f.Sleep(5 * time.Second)
		heal()
		f.Sleep(2 * time.Minute) // the other runs have ended, and been taken off the record
		f.Start("b", longLast)
		number := f.Trigger("job", executor.Trigger{})
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b"}, owners(triggered(number, f.Runs("job"))))
		f.Settle()
		assert.Equal(t, "a", owners(completed(runsOf(f, fire)))[3])
		assert.Equal(t, "b", owners(triggered(number, f.Runs("job")))[3])
	})

	// F6
	promise(t, "the context of a run ends before its re-run begins, with a higher fence", func(t *testing.T, f *rotatest.Fleet) {
		var told time.Time
		var cause error
		f.Start("a", hourly(1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			told, cause = time.Now(), context.Cause(ctx)
			return cause
		}))
		f.Start("b", hourly(1, takes(time.Minute)))
		f.NextFire("job")
		f.Partition("a")
		f.Settle()
		runs := f.Runs("job")
		require.Len(t, runs, 2)
		require.ErrorIs(t, cause, executor.ErrSessionLost)
		assert.True(t, told.Before(runs[1].Start))
		assert.Greater(t, runs[1].Fence, runs[0].Fence)
	})

	// F6
	promise(t, "a write of a run has no effect after its session has expired", func(t *testing.T, f *rotatest.Fleet) {
		write := make(chan struct{})
		committed := make(chan error, 1)
		f.Start("a", hourly(1, func(ctx context.Context, r *executor.Run) error {
			<-write
			_, err := r.Commit(ctx, registry.Create("data/late", nil))
			committed <- err
			return err
		}))
		f.Start("b", hourly(1, takes(time.Minute)))
		f.NextFire("job")
		release := f.Server().HoldCommit("a")
		close(write)
		synctest.Wait() // the write is on its way, and its answer is awaited
		f.Partition("a")
		f.Settle()
		release()
		require.Error(t, <-committed)
		stored := slices.ContainsFunc(f.Server().Dump(), func(e registry.Entry) bool { return e.Key == "data/late" })
		assert.False(t, stored)
	})

	// F7
	promise(t, "an owner with an outdated plan claims no shard that has moved", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", hourly(6, takes(time.Minute))) // leads
		f.Start("b", hourly(6, takes(time.Minute)))
		tell := f.Server().HoldWatch("b")
		f.Start("c", hourly(6, takes(time.Minute)))
		fire := f.NextFire("job")
		claimed := byInstance(runsOf(f, fire))
		assert.Len(t, claimed["a"], 2)
		assert.Len(t, claimed["c"], 2)
		assert.Empty(t, claimed["b"])
		tell()
		f.Settle()
		assert.Len(t, byInstance(runsOf(f, fire))["b"], 2)
		assert.Len(t, f.Runs("job"), 6)
	})

	// F8, F9
	promise(t, "two processes on one host are two instances, and a name belongs to one process", func(t *testing.T, f *rotatest.Fleet) {
		var mu sync.Mutex
		ran := map[string]int{}
		process := func(machine, instance string) (*executor.Executor, error) {
			e, err := executor.New(f.Server().Client(machine), rotatest.Namespace, executor.Options{
				Instance: instance, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			require.NoError(t, e.Register(hourly(1, func(_ context.Context, r *executor.Run) error {
				mu.Lock()
				defer mu.Unlock()
				ran[r.Instance]++
				return nil
			})))
			return e, e.Start(f.T().Context())
		}
		first, err := process("one", "")
		require.NoError(t, err)
		second, err := process("two", "")
		require.NoError(t, err)
		_, err = process("three", first.Instance())
		require.ErrorIs(t, err, executor.ErrNameTaken)

		f.Sleep(90 * time.Minute)
		require.Len(t, ran, 1)
		leaver, other := first, second
		if ran[second.Instance()] > 0 {
			leaver, other = second, first
		}
		assert.Equal(t, map[string]int{leaver.Instance(): 1}, ran, "the only shard has one owner")
		require.NoError(t, leaver.Shutdown(f.T().Context()))
		f.Sleep(time.Hour)
		assert.Equal(t, map[string]int{leaver.Instance(): 1, other.Instance(): 1}, ran)
		require.NoError(t, other.Shutdown(f.T().Context()))
	})

	// F10
	promise(t, "a missed fire runs once, on the present owner, and for no other shard", func(t *testing.T, f *rotatest.Fleet) {
		overruns := hourly(4, func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 3 && r.FireTime.Equal(at(1)) { // the first run of all
				return sleep(ctx, 90*time.Minute)
			}
			return nil
		})
		f.Start("a", overruns)
		f.SleepUntil(at(1.5))
		f.Start("b", overruns)
		f.SleepUntil(at(2))
		f.Trigger("job", executor.Trigger{Shards: []int{0}}) // which counts as no fire
		f.Settle()
		late := runsOf(f, at(2))
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b", 3: "b"}, owners(late))
		require.Len(t, late, 4)
		for _, r := range late {
			want := executor.Scheduled
			if r.Shard == 3 {
				want = executor.Misfire
			}
			assert.Equal(t, want, r.Reason, "shard %d", r.Shard)
		}
	})

	// F11
	promise(t, "an ended run is not repeated when its process crashes, stops or starts", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(6, takes(time.Second)))
		}
		f.NextFire("job")
		f.Sleep(2 * time.Second)
		f.Crash("c")
		f.Stop("b")
		f.Start("c", hourly(6, takes(time.Second)))
		f.Settle()
		assert.Len(t, f.Runs("job"), 6)
	})

	// F12
	promise(t, "shards are assigned when a process joins or leaves, though no fire is near", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", nightly(4, takes(0)))
		for _, want := range []struct {
			change func()
			shards map[string]int
		}{
			{func() { f.Start("b", nightly(4, takes(0))) }, map[string]int{"a": 2, "b": 2}},
			{func() { f.Stop("a") }, map[string]int{"b": 4}},
		} {
			began := time.Now()
			want.change()
			number := f.Trigger("job", executor.Trigger{})
			assert.Equal(t, want.shards, counts(triggered(number, f.Runs("job"))))
			assert.Less(t, time.Since(began), time.Second)
			f.Sleep(time.Minute)
		}
	})

	// F12
	promise(t, "an idle fleet sends no request to the registry", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, nightly(9, takes(0)))
		}
		f.Sleep(time.Minute)
		f.Server().ResetCounts()
		f.Sleep(time.Hour)
		asked := f.Server().Counts("")
		assert.Zero(t, asked.Reads+asked.Commits+asked.Checks+asked.Conflicts)
	})

	// F13
	promise(t, "a long run delays neither other shards nor their moves", func(t *testing.T, f *rotatest.Fleet) {
		long := hourly(4, func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 3 && r.FireTime.Equal(at(1)) {
				return sleep(ctx, 5*time.Hour)
			}
			return nil
		})
		f.Start("a", long)
		f.SleepUntil(at(1.5))
		f.Start("b", long)
		f.SleepUntil(at(2))
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b"}, owners(runsOf(f, at(2))))
		f.SleepUntil(at(7))
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b", 3: "b"}, owners(runsOf(f, at(7))))
	})

	// F14
	promise(t, "a lost request or answer is repeated until the outcome is known", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", hourly(6, takes(time.Minute))) // leads
		f.Server().LoseRequest("a", 3)
		f.Start("b", hourly(6, takes(time.Minute))) // the plan by which it gets its shards
		f.Settle()
		f.Server().LoseRequest("a", 3)
		f.Server().LoseReply("b", 3)
		runs := runsOf(f, f.NextFire("job")) // claims
		assert.Equal(t, map[string]int{"a": 3, "b": 3}, counts(runs))
		f.Crash("a")
		f.Settle()
		assert.Equal(t, byInstance(runs)["a"], shards(attempt(2, f.Runs("job"))))
	})

	// F15
	promise(t, "an owner that receives its plan late loses no fire", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", hourly(4, takes(0)))
		f.NextFire("job")
		f.Start("b")
		tell := f.Server().HoldWatch("b")
		f.Register("b", hourly(4, takes(0)))
		fire := f.NextFire("job")
		assert.Equal(t, map[int]string{0: "a", 1: "a"}, owners(runsOf(f, fire)))
		f.Sleep(time.Minute)
		tell()
		f.Settle()
		assert.Equal(t, map[int]string{0: "a", 1: "a", 2: "b", 3: "b"}, owners(runsOf(f, fire)))
		assert.Len(t, f.Runs("job"), 8)
	})

	// F16
	promise(t, "the next leader sees the joins and crashes during a vacancy", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, nightly(6, takes(0)))
		}
		f.Crash("a") // which leads
		f.Crash("b")
		f.Server().Expire("b") // it is gone before there is another leader
		f.Start("d", nightly(6, takes(0)))
		f.Settle()
		number := f.Trigger("job", executor.Trigger{})
		assert.Equal(t, map[string]int{"c": 3, "d": 3}, counts(triggered(number, f.Runs("job"))))
	})

	// F17
	promise(t, "a run whose second attempt crashes gets a third attempt", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(1, takes(time.Minute)))
		}
		f.NextFire("job")
		for range 2 {
			runs := f.Runs("job")
			f.Crash(runs[len(runs)-1].Instance)
			f.Sleep(15 * time.Second)
		}
		f.Settle()
		runs := f.Runs("job")
		require.Len(t, runs, 3)
		assert.Equal(t, 3, runs[2].Attempt)
		assert.NoError(t, runs[2].Err)
		assert.ElementsMatch(t, []string{"a", "b", "c"}, []string{runs[0].Instance, runs[1].Instance, runs[2].Instance})
	})

	// F18
	promise(t, "a process that returns under its name gets shards, and its unfinished runs are repeated", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", hourly(3, takes(time.Minute)))
		fire := f.NextFire("job")
		f.Crash("a")
		f.Start("a", hourly(3, takes(time.Minute)))
		f.Settle()
		assert.Equal(t, []int{0, 1, 2}, shards(completed(attempt(2, runsOf(f, fire)))))
		assert.Len(t, runsOf(f, f.NextFire("job")), 3)
	})

	// F19
	promise(t, "re-runs after a crash begin at once and together, though all other instances are busy", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(12, takes(30*time.Minute)))
		}
		f.NextFire("job")
		began := time.Now()
		f.Crash("c")
		f.Sleep(time.Minute)
		again := attempt(2, f.Runs("job"))
		require.Len(t, again, 4)
		for _, r := range again {
			assert.Equal(t, again[0].Start, r.Start)
		}
		assert.LessOrEqual(t, again[0].Start.Sub(began), 11*time.Second)
	})

	// F19
	promise(t, "a fire that was not claimed when its owner crashed is claimed by the next owner", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(6, takes(time.Minute)))
		}
		f.SleepUntil(at(1).Add(-time.Second))
		f.Crash("c")
		f.Sleep(2 * time.Second)
		assert.Len(t, runsOf(f, at(1)), 4)
		f.Settle()
		runs := runsOf(f, at(1))
		assert.Len(t, runs, 6)
		assert.Empty(t, attempt(2, runs))
	})

	// F20
	promise(t, "an instance with re-runs of another does not leave out its own runs", func(t *testing.T, f *rotatest.Fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(6, slowOn("c")))
		}
		own := byInstance(runsOf(f, f.NextFire("job")))["b"]
		f.SleepUntil(at(2).Add(-5 * time.Second))
		tell := f.Server().HoldWatch("b") // so that it hears of the crash when its own shards are due again
		f.Crash("c")
		f.Server().Expire("c")
		f.SleepUntil(at(2).Add(5 * time.Second))
		require.Empty(t, byInstance(runsOf(f, at(2)))["b"])
		tell()
		f.Sleep(time.Second / 2)
		assert.NotEmpty(t, byInstance(attempt(2, f.Runs("job")))["b"])
		assert.Equal(t, own, byInstance(runsOf(f, at(2)))["b"])
	})

	// F21
	promise(t, "a long run delays no other shard and no other job", func(t *testing.T, f *rotatest.Fleet) {
		other := hourly(2, takes(time.Second))
		other.Name = "other"
		f.Start("a", other, hourly(3, func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 0 {
				return sleep(ctx, 10*time.Hour)
			}
			return nil
		}))
		f.SleepUntil(at(9.5))
		assert.Len(t, f.Runs("job"), 1+9+9)
		assert.Len(t, f.Runs("other"), 9+9)
		for _, r := range append(f.Runs("job"), f.Runs("other")...) {
			assert.Equal(t, r.FireTime, r.Start.UTC(), r.ID)
		}
	})

	// F22
	promise(t, "triggers wait in order, while the job is busy and while no instance leads", func(t *testing.T, f *rotatest.Fleet) {
		job := executor.Job{Name: "job", Handler: takes(time.Minute)}
		for _, name := range []string{"a", "b"} {
			f.Start(name, job)
		}
		params := []string{"1st", "2nd", "3rd", "4th", "5th"}
		for _, param := range params[:3] {
			f.Trigger("job", executor.Trigger{Param: param})
		}
		f.Settle()
		f.Crash("a") // which leads
		for _, param := range params[3:] {
			f.Trigger("job", executor.Trigger{Param: param})
		}
		f.Settle()
		var made []string
		for _, r := range f.Runs("job") {
			made = append(made, r.Param)
		}
		assert.Equal(t, params, made)
	})

	// F23
	promise(t, "fires go on for weeks, and begin again after years without a process", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", nightly(1, takes(time.Minute)))
		const nights = 15
		for range nights {
			require.Equal(t, f.NextFire("job"), time.Now().UTC())
		}
		f.Settle()
		assert.Len(t, f.Runs("job"), nights)
		f.Stop("a")
		f.Sleep(1000 * 24 * time.Hour)
		f.Start("a", nightly(1, takes(time.Minute)))
		f.Settle()
		fire := f.NextFire("job")
		runs := f.Runs("job")
		require.Len(t, runs, nights+2)
		assert.Equal(t, executor.Misfire, runs[nights].Reason)
		assert.Equal(t, fire.Add(-24*time.Hour), runs[nights].FireTime)
		assert.Equal(t, executor.Scheduled, runs[nights+1].Reason)
	})

	// F24
	promise(t, "left-over records of crashed processes delay no election and no join", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", nightly(2, takes(0)))
		f.Start("b", nightly(2, takes(0)))
		f.Crash("a")
		f.Crash("b")
		f.Sleep(time.Minute)
		began := time.Now()
		f.Start("c", nightly(2, takes(0)))
		number := f.Trigger("job", executor.Trigger{})
		assert.Equal(t, map[string]int{"c": 2}, counts(triggered(number, f.Runs("job"))))
		assert.Less(t, time.Since(began), time.Second)
	})

	// F25
	promise(t, "a lost session is followed by another, and the jobs continue", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", hourly(2, takes(time.Minute)))
		heal := f.Partition("a")
		f.Sleep(5 * time.Minute)
		heal()
		f.Settle()
		f.Server().Expire("a")
		assert.Len(t, runsOf(f, f.NextFire("job")), 2)
	})

	// F26
	promise(t, "a fleet elects a leader again after a cut of all its instances", func(t *testing.T, f *rotatest.Fleet) {
		var heals []func()
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, hourly(3, takes(time.Minute)))
		}
		for _, name := range []string{"a", "b", "c"} {
			heals = append(heals, f.Partition(name))
		}
		f.Sleep(5 * time.Minute)
		for _, heal := range heals {
			heal()
		}
		f.Settle()
		assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, counts(runsOf(f, f.NextFire("job"))))
	})

	// F27
	promise(t, "a job of one shard runs once before and once after all shards of a fire, whoever crashes", func(t *testing.T, f *rotatest.Fleet) {
		before, after := hourly(1, takes(time.Minute)), hourly(1, takes(time.Minute))
		before.Name, after.Name = "before", "after"
		job := hourly(6, takes(10*time.Minute))
		job.Schedule, after.Schedule = schedule.AfterJob("before"), schedule.AfterJob("job").OnEnd()
		for _, name := range []string{"a", "b", "c"} {
			f.Start(name, before, job, after)
		}
		fire := f.NextFire("before")
		f.Sleep(5 * time.Minute)
		f.Crash("a") // which leads
		f.Sleep(5 * time.Minute)
		f.Crash("b")
		f.Start("d", before, job, after)
		f.Settle()
		f.Sleep(30 * time.Minute)
		ended := map[string][]time.Time{}
		for _, job := range []string{"before", "job", "after"} {
			for _, r := range f.Runs(job) {
				assert.Equal(t, fire, r.FireTime)
				if r.Err == nil && !r.End.IsZero() {
					ended[job] = append(ended[job], r.Start)
				}
			}
		}
		require.Len(t, ended["before"], 1)
		assert.Len(t, ended["job"], 6)
		require.Len(t, ended["after"], 1)
		for _, began := range ended["job"] {
			assert.True(t, began.After(ended["before"][0]))
			assert.True(t, began.Before(ended["after"][0]))
		}
	})

	// F28, as far as servers go
	promise(t, "a disabled host stays disabled when it restarts and when others start, until it is enabled", func(t *testing.T, f *rotatest.Fleet) {
		job := hourly(4, takes(time.Minute))
		e := f.Start("a", job)
		f.Start("b", job)
		require.NoError(t, e.Operator().Disable(f.T().Context(), operator.Scope{Hosts: []string{"b"}}))
		f.Settle()
		f.Stop("b")
		f.Start("b", job)
		f.Crash("a") // which leads
		f.Settle()
		e = f.Start("c", job)
		assert.Equal(t, map[string]int{"c": 4}, counts(runsOf(f, f.NextFire("job"))))

		require.NoError(t, e.Operator().Enable(f.T().Context(), operator.Scope{Hosts: []string{"b"}}))
		f.Settle()
		assert.Equal(t, map[string]int{"b": 2, "c": 2}, counts(runsOf(f, f.NextFire("job"))))
	})
	promise(t, "a host that is disabled for one job runs the others, also after a restart", func(t *testing.T, f *rotatest.Fleet) {
		other := hourly(2, takes(time.Minute))
		other.Name = "other"
		e := f.Start("a", hourly(2, takes(time.Minute)), other)
		f.Start("b", hourly(2, takes(time.Minute)), other)
		require.NoError(t, e.Operator().Disable(f.T().Context(), operator.Scope{Job: "job", Hosts: []string{"b"}}))
		f.Settle()
		f.Stop("b")
		f.Start("b", hourly(2, takes(time.Minute)), other)
		f.Settle()
		f.NextFire("job")
		assert.Equal(t, map[string]int{"a": 2}, counts(f.Runs("job")))
		assert.Equal(t, map[string]int{"a": 1, "b": 1}, counts(f.Runs("other")))
	})

	// F28, as far as items go
	promise(t, "a disabled shard stays disabled under any owner, and its fires are skipped", func(t *testing.T, f *rotatest.Fleet) {
		job := hourly(2, takes(time.Minute))
		e := f.Start("a", job)
		s := operator.Scope{Job: "job", Shards: []int{1}}
		require.NoError(t, e.Operator().Disable(f.T().Context(), s))
		f.Settle()
		f.Stop("a")
		e = f.Start("a", job)
		f.Start("b", job)
		f.SleepUntil(at(3.5))
		assert.Equal(t, []int{0, 0, 0}, shards(f.Runs("job")))

		require.NoError(t, e.Operator().Enable(f.T().Context(), s))
		f.Settle()
		f.SleepUntil(at(4.5))
		assert.Equal(t, []int{0, 0, 0, 0, 1}, shards(f.Runs("job")))
	})

	// F28, as far as jobs go
	promise(t, "a pause outlives every process and every definition", func(t *testing.T, f *rotatest.Fleet) {
		job := hourly(2, takes(time.Minute))
		e := f.Start("a", job)
		require.NoError(t, e.Operator().Pause(f.T().Context(), "job"))
		f.Settle()
		f.Stop("a")
		e = f.Start("a", job)
		f.NextFire("job")
		assert.Empty(t, f.Runs("job"))

		require.NoError(t, e.Operator().Resume(f.T().Context(), "job"))
		f.Settle()
		f.Stop("a")
		job.StartPaused = true
		f.Start("a", job)
		assert.Len(t, runsOf(f, f.NextFire("job")), 2)
	})
}

// promise is a subtest with a fleet. F1 and so on are the numbers in docs/elastic-job.md.
func promise(t *testing.T, name string, test func(*testing.T, *rotatest.Fleet)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) { test(t, f) })
	})
}

func hourly(shards int, h executor.HandlerFunc) executor.Job {
	return executor.Job{Name: "job", Schedule: schedule.Every(time.Hour), Shards: shards, Handler: h}
}

func nightly(shards int, h executor.HandlerFunc) executor.Job {
	return executor.Job{Name: "job", Schedule: schedule.Cron("0 3 * * *"), Shards: shards, Handler: h}
}

// takes returns a handler whose runs take d, or until their context ends.
func takes(d time.Duration) executor.HandlerFunc {
	return func(ctx context.Context, _ *executor.Run) error { return sleep(ctx, d) }
}

// slowOn returns a handler whose runs take two hours on one instance, and a second on others.
func slowOn(instance string) executor.HandlerFunc {
	return func(ctx context.Context, r *executor.Run) error {
		if r.Instance == instance {
			return sleep(ctx, 2*time.Hour)
		}
		return sleep(ctx, time.Second)
	}
}

// at returns the instant so many hours after tests begin.
func at(hours float64) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(hours * float64(time.Hour)))
}

// which returns the runs for which ok says so.
func which(runs []rotatest.Record, ok func(rotatest.Record) bool) []rotatest.Record {
	return slices.DeleteFunc(slices.Clone(runs), func(r rotatest.Record) bool { return !ok(r) })
}

// runsOf returns the runs of a fire.
func runsOf(f *rotatest.Fleet, fire time.Time) []rotatest.Record {
	return which(f.Runs("job"), func(r rotatest.Record) bool { return r.Trigger == 0 && r.FireTime.Equal(fire) })
}

func triggered(number uint64, runs []rotatest.Record) []rotatest.Record {
	return which(runs, func(r rotatest.Record) bool { return r.Trigger == number })
}

func attempt(n int, runs []rotatest.Record) []rotatest.Record {
	return which(runs, func(r rotatest.Record) bool { return r.Attempt == n })
}

// completed returns the runs that have ended without an error.
func completed(runs []rotatest.Record) []rotatest.Record {
	return which(runs, func(r rotatest.Record) bool { return !r.End.IsZero() && r.Err == nil })
}

// owners returns who made the runs, by shard: with a second name if two did.
func owners(runs []rotatest.Record) map[int]string {
	out := map[int]string{}
	for _, r := range runs {
		out[r.Shard] += r.Instance
	}
	return out
}

// byInstance returns the shards of runs, in order, by who made them.
func byInstance(runs []rotatest.Record) map[string][]int {
	out := map[string][]int{}
	for _, r := range runs {
		out[r.Instance] = append(out[r.Instance], r.Shard)
	}
	for _, all := range out {
		slices.Sort(all)
	}
	return out
}

func counts(runs []rotatest.Record) map[string]int {
	out := map[string]int{}
	for name, all := range byInstance(runs) {
		out[name] = len(all)
	}
	return out
}

func shards(runs []rotatest.Record) []int {
	var out []int
	for _, r := range runs {
		out = append(out, r.Shard)
	}
	slices.Sort(out)
	return out
}
