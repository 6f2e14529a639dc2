package executor_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/group/explain"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// startJob starts an executor of one job.
func (f *fleet) startJob(name string, o executor.Options, j executor.Job) *executor.Executor {
	f.t.Helper()
	o.Instance, o.Logger = name, slog.New(slog.DiscardHandler)
	e, err := executor.New(f.server.Client(name), "test", o)
	require.NoError(f.t, err)
	f.members = append(f.members, e)
	require.NoError(f.t, e.Register(j))
	require.NoError(f.t, e.Start(f.t.Context()))
	time.Sleep(time.Second)
	return e
}

// why explains a fire of shard 0, from outside of the fleet, and returns the last gate, too.
func (f *fleet) why(fire time.Time) (operator.Answer, operator.Gate) {
	f.t.Helper()
	return f.whyOf("job", 0, fire)
}

func (f *fleet) whyOf(job string, shard int, fire time.Time) (operator.Answer, operator.Gate) {
	f.t.Helper()
	synctest.Wait()
	e, err := f.operator().WithCompiler(executor.Compile).Explain(f.t.Context(), job, shard, fire)
	require.NoError(f.t, err)
	require.Len(f.t, e.Answers, 1)
	a := e.Answers[0]
	return a, a.Gates[len(a.Gates)-1]
}

// stops requires that shard 0's newest fire is stopped by a gate.
func (f *fleet) stops(gate, summary, do string) operator.Answer {
	f.t.Helper()
	a, last := f.why(time.Time{})
	assert.Equal(f.t, gate, last.Name, "%+v", a)
	assert.Equal(f.t, operator.VerdictStop, last.Verdict)
	assert.True(f.t, a.Stops)
	assert.Contains(f.t, a.Summary, summary)
	assert.Contains(f.t, a.Do, do)
	return a
}

func TestExplain(t *testing.T) {
	newest := time.Time{}
	bubble(t, "an unknown job", func(t *testing.T, f *fleet) {
		a, last := f.whyOf("unheard", 0, minute(1))
		assert.Equal(t, "defined", last.Name)
		assert.True(t, a.Stops)
		e, err := f.operator().Explain(t.Context(), "unheard", 0, newest)
		require.NoError(t, err)
		assert.False(t, e.Known)
		_, err = f.operator().Explain(t.Context(), "unheard", 1, newest)
		assert.EqualError(t, err, `explain "unheard": there is no shard 1 of 1`)
	})
	bubble(t, "a fire that ran, one that is to come, and none", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 2, takes(0))
		until(3)
		a, last := f.why(newest)
		assert.Equal(t, operator.Gate{Name: "outcome", Verdict: operator.VerdictOK, Detail: "the run has ended, and no failure of it is on record"}, last)
		assert.Equal(t, "The fire of 2000-01-01T00:03:00Z succeeded, as attempt 1 by a.", a.Summary)
		assert.False(t, a.Stops)
		assert.Equal(t, minute(3), a.Fire)
		assert.Less(t, len(a.Gates), len(explain.GateNames()), "gates before the claim are left out")
		_, last = f.why(minute(2))
		assert.Equal(t, operator.VerdictUnknown, last.Verdict, "an older one")
		a, last = f.why(minute(4))
		assert.Equal(t, "due", last.Name)
		assert.Contains(t, a.Summary, "the fire is due in 59s")
		_, last = f.why(minute(2).Add(time.Second))
		assert.Contains(t, last.Detail, `the schedule "every 1m" does not have the instant. the next fire is at 2000-01-01T00:04:00Z`)
	})
	bubble(t, "a run, and the fire behind it", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 1, takes(100*time.Second))
		until(1)
		a, last := f.why(newest)
		assert.Equal(t, "running", last.Name)
		assert.Equal(t, "The fire of 2000-01-01T00:01:00Z runs on a, as attempt 1.", a.Summary)
		until(2)
		f.stops("ahead", "the run of 2000-01-01T00:01:00Z (attempt 1) has not ended on a", "timeout")
	})
	bubble(t, "a failed run, and its retry", func(t *testing.T, f *fleet) {
		fail := func(context.Context, *executor.Run) error { return errors.New("no such table") }
		f.start("a", executor.Options{}, 1, fail)
		until(1)
		f.stops("outcome", "failed: attempt 1 ended at 2000-01-01T00:01:00Z with: no such table", "retry the fire")
		j := f.job(1, fail)
		j.Name, j.Retry = "other", executor.Retry{Max: 1, Initial: 20 * time.Second}
		f.startJob("b", executor.Options{}, j)
		until(2)
		a, last := f.whyOf("other", 0, newest)
		assert.Equal(t, "retry", last.Name)
		assert.Contains(t, last.Detail, "attempt 1 failed: no such table; attempt 2 waits until 2000-01-01T00:02:")
		assert.True(t, a.Stops)
	})
	bubble(t, "a run that waits for a worker", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{Workers: 1}, 2, takes(40*time.Second))
		until(1)
		time.Sleep(12 * time.Second)
		synctest.Wait()
		e, err := f.operator().WithCompiler(executor.Compile).Explain(t.Context(), "job", operator.AllShards, newest)
		require.NoError(t, err)
		require.Len(t, e.Answers, 2)
		gates := map[string]string{}
		for _, a := range e.Answers {
			gates[a.Gates[len(a.Gates)-1].Name] = a.Summary
		}
		assert.Contains(t, gates["running"], "runs on a")
		assert.Contains(t, gates["worker"], "is claimed and waits for a worker of a since 2000-01-01T00:01:00Z, behind Workers 1, busy with job (1).")
	})
	bubble(t, "a paused job, a stopped schedule and a disabled shard", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 2, takes(0))
		require.NoError(t, e.Operator().Pause(t.Context(), "job"))
		until(1)
		f.stops("intent", "the job is paused since 2000-01-01T00:00:01Z", "resume the job")
		require.NoError(t, e.Operator().StopSchedule(t.Context(), "job"))
		until(2)
		f.stops("intent", "triggers only", "trigger")
		require.NoError(t, e.Operator().Resume(t.Context(), "job"))
		require.NoError(t, e.Operator().Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		until(3)
		f.stops("claimed", "was skipped; the shard is disabled", "enable the shard")
		_, last := f.whyOf("job", 1, newest)
		assert.Equal(t, operator.VerdictOK, last.Verdict)
		_, last = f.why(minute(1))
		assert.Contains(t, last.Detail, "in the plan any more")
	})
	bubble(t, "a disabled shard behind a run", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, takes(100*time.Second))
		until(1)
		require.NoError(t, e.Operator().Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}}))
		until(2)
		a := f.stops("intent", "the shard is disabled since 2000-01-01T00:01:01Z, and its owner skips its fires", "enable the shard")
		assert.Contains(t, a.Summary, "its policy would skip it now")
	})
	bubble(t, "shards that no instance may own", func(t *testing.T, f *fleet) {
		j := f.job(3, takes(0))
		j.RunOn = map[string]string{"gpu": "yes"}
		e := f.startJob("a", executor.Options{}, j)
		until(1)
		a := f.stops("owner", "1 instance offers the job, and none may own it (without the labels gpu=yes: a)", "start an instance with the labels")
		assert.Contains(t, a.Summary, "It is 1s late and still due.")
		require.NoError(t, e.Operator().As("kim", "new kernel").BeginDrain(t.Context(), "a"))
		synctest.Wait()
		f.stops("owner", "(disabled since 2000-01-01T00:01:01Z by kim (new kernel): a)", "enable the instance or its host: rota undrain a")
		all, err := f.operator().WithCompiler(executor.Compile).Explain(t.Context(), "job", operator.AllShards, newest)
		require.NoError(t, err)
		require.Len(t, all.Answers, 1)
		assert.Equal(t, []int{0, 1, 2}, all.Answers[0].Shards)
	})
	bubble(t, "a job that no instance offers", func(t *testing.T, f *fleet) {
		e := f.start("a", executor.Options{}, 1, takes(0))
		j := f.job(1, takes(0))
		j.Name = "other"
		f.startJob("b", executor.Options{}, j)
		require.NoError(t, e.Shutdown(t.Context()))
		until(1)
		f.stops("offered", "no live instance offers the job; 1 instance is in the group", "start a process")
	})
	bubble(t, "a fleet that has crashed", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{SessionTTL: 5 * time.Second}, 1, takes(0))
		f.server.Partition("a")
		until(1)
		f.stops("offered", "no live instance offers the job; 0 instances are in the group", "start a process")
	})
	bubble(t, "an owner that is awaited", func(t *testing.T, f *fleet) {
		f.start("b", executor.Options{RestartGrace: 3 * time.Minute}, 1, takes(0))
		f.start("c", executor.Options{}, 1, takes(0))
		f.server.Partition("b")
		until(1)
		f.stops("owner", "the session of the owner b has expired; its shards wait up to 3m0s for its return", "start b again")
	})
	bubble(t, "a frozen shard", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 1, takes(150*time.Second))
		until(1)
		o := f.operator()
		f.start("b", executor.Options{}, 1, takes(0))
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Instances: []string{"a"}}))
		until(2)
		f.stops("frozen", "it moves when the run of 2000-01-01T00:01:00Z (attempt 1) has ended", "wait for the run to end")
	})
	bubble(t, "a run that was lost", func(t *testing.T, f *fleet) {
		j := f.job(1, takes(time.Hour))
		j.OnCrash = executor.CountAsFailed
		f.startJob("a", executor.Options{SessionTTL: 5 * time.Second}, j)
		f.startJob("b", executor.Options{SessionTTL: 5 * time.Second}, j)
		until(1)
		owner, _ := f.why(newest)
		f.server.Partition(strings.Fields(strings.TrimPrefix(owner.Summary, "The fire of 2000-01-01T00:01:00Z runs on "))[0][:1])
		time.Sleep(10 * time.Second)
		a, last := f.why(minute(1))
		assert.Equal(t, "outcome", last.Name)
		assert.Contains(t, a.Summary, "was lost: the session of its owner expired during attempt 1")
	})
	bubble(t, "fires that count from the ends of runs", func(t *testing.T, f *fleet) {
		j := f.job(1, takes(10*time.Second))
		j.Schedule = schedule.FixedDelay(time.Minute)
		f.startJob("a", executor.Options{}, j)
		time.Sleep(65 * time.Second)
		a, last := f.why(newest)
		assert.Equal(t, "running", last.Name)
		assert.Contains(t, a.Summary, "runs on a")
		time.Sleep(20 * time.Second)
		a, last = f.why(newest)
		assert.Equal(t, "due", last.Name)
		assert.Contains(t, a.Summary, "No fire: the next fire is at 2000-01-01T00:02:")
	})
	fails := func(context.Context, *executor.Run) error { return errors.New("no such table") }
	bubble(t, "a daemon that fails again and again", func(t *testing.T, f *fleet) {
		of := f.job(1, nil)
		of.Handler = executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			if r.Attempt > 3 {
				return takes(time.Hour)(ctx, r)
			}
			return fails(ctx, r)
		})
		of.Schedule = schedule.Always()
		e := f.startJob("a", executor.Options{}, of)
		time.Sleep(5 * time.Second)
		a := f.stops("retry", "failed 3 times and is retried: attempt 4 waits until 2000-01-01T00:00:", "wait")
		assert.True(t, strings.HasPrefix(a.Summary, "The daemon (fire 2000-01-01T00:00:01."), a.Summary)
		assert.True(t, strings.HasSuffix(a.Summary, "Z. Attempt 3 ended with: no such table."), a.Summary)
		time.Sleep(10 * time.Second)
		a, _ = f.why(newest)
		assert.Contains(t, a.Summary, "runs on a, as attempt 4, and failed 3 times before: no such table.")
		require.NoError(t, e.Operator().As("kim", "new kernel").BeginDrain(t.Context(), "a"))
		time.Sleep(time.Second)
		f.stops("owner", "is to be run again, as attempt 5: the shard has no owner: 1 instance offers the job, and none may own it (disabled since 2000-01-01T00:00:16Z by kim (new kernel): a).", "rota undrain a")
	})
	bubble(t, "a run of a daemon and of a fixed delay that waits for an instance", func(t *testing.T, f *fleet) {
		for name, s := range map[string]schedule.Schedule{"daemon": schedule.Always(), "delay": schedule.FixedDelay(time.Second)} {
			j := f.job(1, takes(24*time.Hour))
			j.Name, j.Schedule = name, s
			e := f.startJob(name, executor.Options{DrainTimeout: time.Second}, j)
			time.Sleep(10 * time.Minute)
			require.NoError(t, e.Shutdown(t.Context()))
			time.Sleep(10 * time.Minute)
			a, last := f.whyOf(name, 0, newest)
			assert.Equal(t, "offered", last.Name)
			assert.Contains(t, a.Summary, "is to be run again, as attempt 2: no live instance offers the job")
			assert.NotContains(t, a.Summary, "late")
			assert.NotContains(t, a.Summary, "next fire")
		}
	})
	bubble(t, "a daemon that no instance may run", func(t *testing.T, f *fleet) {
		j := f.job(1, takes(0))
		j.Schedule, j.RunOn = schedule.Always(), map[string]string{"gpu": "yes"}
		f.startJob("a", executor.Options{}, j)
		until(5)
		a := f.stops("owner", "has not run: the shard has no owner", "with the labels")
		assert.True(t, strings.HasSuffix(a.Summary, "It is to run since 2000-01-01T00:00:01Z."), a.Summary)
	})
	bubble(t, "a failed run of a fixed delay, and one that waits for a retry", func(t *testing.T, f *fleet) {
		j := f.job(1, fails)
		j.Schedule = schedule.FixedDelay(time.Minute)
		f.startJob("a", executor.Options{}, j)
		time.Sleep(70 * time.Second)
		a := f.stops("outcome", "with: no such table. The next fire is at 2000-01-01T00:02:00.", "remove the cause")
		assert.Equal(t, "Retry", a.Verb)
		j.Name, j.Retry = "retried", executor.Retry{Max: 3, Initial: time.Hour}
		f.startJob("b", executor.Options{}, j)
		time.Sleep(10 * time.Minute)
		a, last := f.whyOf("retried", 0, newest)
		assert.Equal(t, "retry", last.Name)
		assert.NotContains(t, a.Summary, "late")
	})
	bubble(t, "a retry that waits, and need not", func(t *testing.T, f *fleet) {
		var runs atomic.Int64
		j := f.job(1, func(ctx context.Context, r *executor.Run) error { runs.Add(1); return fails(ctx, r) })
		j.Schedule, j.Retry = schedule.Every(24*time.Hour), executor.Retry{Max: 1, Initial: time.Hour, MaxInterval: time.Hour}
		e := f.startJob("a", executor.Options{}, j)
		time.Sleep(24*time.Hour + time.Minute)
		f.stops("retry", "failed and is retried", "wait, or cancel the retry, and retry the fire then")
		_, err := e.Trigger(t.Context(), "job", executor.Trigger{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, runs.Load(), "a trigger waits for the retry")
		for want := range 2 { // the retry of the fire, then that of the trigger
			_, err = e.Operator().Cancel(t.Context(), "job", 0)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			require.EqualValues(t, 2, runs.Load(), want)
		}
		fire := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		a, last := f.why(fire)
		assert.Equal(t, []any{"outcome", "Retry"}, []any{last.Name, a.Verb})
		assert.Contains(t, a.Summary, "failed: attempt 1 ended at 2000-01-02T00:02:")
		assert.Contains(t, a.Summary, "with: cancelled by an operator")
		st, err := f.operator().WithCompiler(executor.Compile).Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []int{0}, st.Failing)
		_, err = e.Operator().Retry(t.Context(), "job", fire, operator.RetryOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, runs.Load())
	})
	bubble(t, "a failed run of a job that runs by triggers only, paused and retiring", func(t *testing.T, f *fleet) {
		j := f.job(1, fails)
		j.Schedule = schedule.OnTrigger()
		e := f.startJob("a", executor.Options{}, j)
		_, err := e.Trigger(t.Context(), "job", executor.Trigger{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, e.Operator().As("kim", "new tables").Pause(t.Context(), "job"))
		time.Sleep(time.Minute)
		a := f.stops("outcome", "with: no such table. The job is paused since 2000-01-01T00:01:01Z by kim (new tables), so no further run of it begins.", "remove the cause, then resume the job")
		assert.Equal(t, "Resume", a.Verb)
		err = e.Operator().As("kim", "renamed").Retire(t.Context(), "job")
		require.NoError(t, err)
		time.Sleep(time.Second)
		a = f.stops("outcome", "The job is retiring since 2000-01-01T00:02:01Z by kim (renamed), so no further run of it begins.", "rota unretire job")
		assert.Empty(t, a.Verb)
	})
	bubble(t, "fires of jobs that follow others", func(t *testing.T, f *fleet) {
		f.startChain("a", schedule.AfterJob("job"), func(ctx context.Context, r *executor.Run) error {
			if r.FireTime.Equal(minute(2)) {
				return errors.New("out of order")
			}
			return takes(10*time.Second)(ctx, r)
		}, takes(0))
		until(1)
		a, last := f.whyOf("child", 0, newest)
		assert.Equal(t, operator.Gate{Name: "due", Verdict: operator.VerdictStop, Detail: `the job follows "job", of which the fire of that instant, or an earlier one, has not ended`}, last)
		assert.Equal(t, minute(1), a.Fire)
		time.Sleep(15 * time.Second)
		a, last = f.whyOf("child", 0, newest)
		assert.Equal(t, operator.VerdictOK, last.Verdict, "%+v", a)
		assert.Contains(t, a.Summary, "succeeded, as attempt 1 by a")
		until(2)
		a, last = f.whyOf("child", 0, newest)
		assert.Equal(t, "due", last.Name)
		assert.Contains(t, a.Summary, `is no fire of this job: the followed fire did not end as the schedule wants it (on success): of 2 shards of "job", 2 failed and 0 did not run`)
		until(3)
		a, last = f.whyOf("job", 0, minute(1))
		assert.Equal(t, operator.VerdictOK, last.Verdict, "the plan has the ends of followed fires")
		assert.Contains(t, a.Summary, "succeeded: the runs of all shards had ended at")
	})
	bubble(t, "from a program that does not know the schedules", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 1, takes(0))
		until(2)
		e, err := f.operator().Explain(t.Context(), "job", 0, newest)
		require.NoError(t, err)
		assert.Equal(t, minute(2), e.Answers[0].Fire)
		assert.False(t, e.Answers[0].Stops)
	})
}

func TestExplain_IsDocumentedGateByGate(t *testing.T) {
	text, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Why did it not run\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for line := range strings.Lines(section) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			documented = append(documented, name)
		}
	}
	assert.Equal(t, explain.GateNames(), documented)
}
