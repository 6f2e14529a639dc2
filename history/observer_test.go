package history

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// Recorded by one instance of two: runs that succeed, fail and panic, one that crashes and
// made again.
func TestObserver_RecordsAFleet(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		ring := NewRing(1000)
		annotate := func(_ executor.RunEnded, r *Run) { r.TraceID = "annotated " + r.TraceID }
		rec := New(ring, Options{Namespace: rotatest.Namespace, Instance: "a", Keep: KeepAll, Annotate: annotate})
		f.T().Cleanup(func() { shutDown(t, rec) })
		job := executor.Job{Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			switch {
			case r.Attempt > 1:
				return nil
			case r.Instance == "b":
				<-ctx.Done()
				return context.Cause(ctx)
			}
			time.Sleep(time.Duration(1+r.Shard) * time.Second)
			return nil
		})}
		f.Options.Observer = rec.Observer()
		f.Start("a", job, executor.Job{Name: "bad", Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			r.SetTraceID("trace of " + r.Key)
			return fmt.Errorf("settle: %w", exec.Command("sh", "-c", "exit 3").Run())
		})}, executor.Job{Name: "loud", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { panic("at once") })})
		f.Settle()
		fire := f.NextFire("settle")
		f.SleepUntil(fire.Add(10 * time.Second))
		f.Trigger("bad", executor.Trigger{})
		f.Trigger("loud", executor.Trigger{})
		f.Trigger("settle", executor.Trigger{Shards: []int{1}})
		f.Options.Observer = executor.Observer{} // a process that crashes records nothing
		f.Start("b", job)
		f.Settle()
		second := f.NextFire("settle")
		f.SleepUntil(second.Add(10 * time.Second))
		f.Crash("b")
		f.SleepUntil(second.Add(50 * time.Second))

		reader := ring.Reader(rotatest.Namespace, "")
		fires, err := reader.Fires(t.Context(), FiresQuery{Job: "settle", Since: fire})
		require.NoError(t, err)
		require.Len(t, fires, 3)
		require.EqualValues(t, 1, fires[1].OK)
		require.Equal(t, 1, fires[1].Shards, "of a trigger of one shard")
		fires = []Fire{fires[0], fires[2]}
		require.Equal(t, Fire{
			Namespace: rotatest.Namespace, Group: "default", Job: "settle", Fire: fire.UTC(), Shards: 2, OK: 2, FirstStart: fire.UTC(), LastEnd: fire.UTC().Add(2 * time.Second),
			MaxDuration: 2 * time.Second, SumDuration: 3 * time.Second,
		}, fires[1])
		require.EqualValues(t, 2, fires[0].OK)
		require.EqualValues(t, 1, fires[0].Crashed)
		require.EqualValues(t, 1, fires[0].Repeated)

		runs, err := reader.RunsOfFire(t.Context(), "settle", second)
		require.NoError(t, err)
		var crashed *Run
		for i := range runs {
			if runs[i].Outcome == Crashed {
				crashed = &runs[i]
			}
		}
		require.NotNil(t, crashed)
		require.Equal(t, "b", crashed.Instance)
		require.Equal(t, "the session of the instance ended before the run did; the run is made again", crashed.Error)

		bad, err := reader.Last(t.Context(), "bad")
		require.NoError(t, err)
		require.Len(t, bad, 1)
		require.Equal(t, Failed, bad[0].Outcome)
		require.Equal(t, "settle: exit status 3", bad[0].Error)
		require.Equal(t, 3, *bad[0].ExitCode)
		require.Regexp(t, "^annotated trace of rotatest/default/bad/0/#1-.{13}$", bad[0].TraceID)
		require.Equal(t, "triggered", bad[0].Reason)
		require.EqualValues(t, 1, bad[0].Trigger)
		loud, err := reader.Last(t.Context(), "loud")
		require.NoError(t, err)
		require.Equal(t, Panicked, loud[0].Outcome)
		require.Contains(t, loud[0].Output, "goroutine ")
	})
}

func TestObserver_RecordsTheEndsOfFires(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		ring := NewRing(1000)
		jobs := []executor.Job{
			{Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
				time.Sleep(time.Second)
				if r.Shard == 1 {
					return errAway
				}
				return nil
			})},
			{Name: "report", Schedule: schedule.AfterJob("settle").OnFailure(), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })},
		}
		for _, name := range []string{"a", "b"} {
			rec := New(ring, Options{Namespace: rotatest.Namespace, Instance: name, Keep: KeepFires})
			defer shutDown(t, rec)
			f.Options.Observer = rec.Observer()
			f.Start(name, jobs...)
			f.Settle()
		}
		fire := f.NextFire("settle")
		f.SleepUntil(fire.Add(10 * time.Second))
		f.Crash("a") // b leads, and reports the end again
		f.SleepUntil(fire.Add(50 * time.Second))

		reader := ring.Reader(rotatest.Namespace, "")
		fires, err := reader.Fires(t.Context(), FiresQuery{Job: "settle", ByInstance: true})
		require.NoError(t, err)
		require.Len(t, fires, 2, "a has run a shard and reported the end; so has b")
		sums, err := reader.Fires(t.Context(), FiresQuery{Job: "settle"})
		require.NoError(t, err)
		require.Len(t, sums, 1)
		for _, got := range append(fires, sums...) {
			require.WithinRange(t, got.Ended, fire.Add(time.Second), fire.Add(2*time.Second))
			require.Equal(t, []int{2, 1, 0}, []int{got.Shards, got.FailedShards, got.SkippedShards})
		}
		require.Equal(t, []int64{1, 1}, []int64{sums[0].OK, sums[0].Failed})
		followers, err := reader.Fires(t.Context(), FiresQuery{Job: "report"})
		require.NoError(t, err)
		require.Len(t, followers, 1)
		require.Zero(t, followers[0].Ended, "no job follows report")
	})
}

func TestObserver_RecordsSkippedFires(t *testing.T) {
	rec := New(NewRing(10), Options{Namespace: "billing", Instance: "a"})
	ring := rec.sink.(*Ring)
	at := start.Add(time.Minute)
	next := at.Add(time.Minute)
	for _, e := range []executor.FiresSkipped{
		{Job: "settle", Reason: executor.SkipMisfire, Shards: []int{1, 2, 5}, Count: 4, From: start.Add(-time.Hour), Through: at, At: at.Add(time.Second)},
		{Job: "settle", Reason: executor.SkipExpired, Shards: []int{3}, Count: 2, From: start.Add(-2 * time.Hour), Through: at, At: at.Add(2 * time.Second)},
		{Job: "settle", Reason: executor.SkipDisabled, Shards: []int{4}, Count: 1, From: at, Through: at, At: at.Add(2 * time.Second)},
		{Job: "settle", Reason: executor.SkipOverlap, Shards: []int{5}, Count: 1, From: next, Through: next, At: next},
		{Job: "settle", Reason: executor.SkipOverlap, Shards: []int{6}, Count: 3, Through: next, At: next},
	} {
		rec.Observer().FiresSkipped(e)
	}
	shutDown(t, rec)
	fires, err := ring.Reader("billing", "").Fires(t.Context(), FiresQuery{Job: "settle", ByInstance: true})
	require.NoError(t, err)
	require.Equal(t, []Fire{
		{Namespace: "billing", Group: "default", Job: "settle", Fire: next, Instance: "a", Skipped: 4, SkippedBy: Skips{Overlap: 4}},
		{Namespace: "billing", Group: "default", Job: "settle", Fire: at, Instance: "a", Skipped: 15, SkippedFrom: start.Add(-2 * time.Hour), SkippedBy: Skips{Misfire: 12, Expired: 2, Disabled: 1}},
	}, fires)
	for want, covering := range map[int]time.Time{2: {}, 1: next, 0: start.Add(-3 * time.Hour), 15: start.Add(-90 * time.Minute), 16: at} {
		fires, err := ring.Reader("billing", "").Fires(t.Context(), FiresQuery{Job: "settle", Covering: covering})
		require.NoError(t, err)
		switch {
		case covering.IsZero():
			require.Len(t, fires, want)
		case want == 0:
			require.Empty(t, fires)
		default:
			require.Len(t, fires, 1, covering)
		}
	}
}

// A reason that the history does not know would be lost.
func TestSkips_HaveEveryReason(t *testing.T) {
	for reason := executor.SkipMisfire; reason <= executor.SkipUpstream; reason++ {
		var reasons []executor.SkipReason
		for r, n := range newSkips(reason, 2).add(newSkips(reason, 1)).All() {
			require.EqualValues(t, 3, n)
			reasons = append(reasons, r)
		}
		require.Equal(t, []executor.SkipReason{reason}, reasons)
	}
	text, err := (executor.SkipUpstream + 1).MarshalText()
	require.NoError(t, err)
	require.Equal(t, "unknown", string(text), "a reason was added")
}

// exitError is an error as handler.Command returns it.
type exitError struct{}

func (exitError) Error() string      { return "exit status 4" }
func (exitError) ExitCode() int      { return 4 }
func (exitError) OutputTail() string { return strings.Repeat("x", 9000) + "end" }

func TestNewRun_TakesExitCodeAndOutputOfTheError(t *testing.T) {
	run := newRun(executor.RunEnded{Run: executor.RunInfo{Job: "settle", Fence: 7}, Outcome: executor.Failed, Err: errors.Join(errAway, exitError{})}).normalize()
	require.Equal(t, 4, *run.ExitCode)
	require.Len(t, run.Output, MaxOutput)
	require.True(t, strings.HasSuffix(run.Output, "end"))
	require.EqualValues(t, 7, run.Fence)
}

func TestOutcome_IsFailure(t *testing.T) {
	require.False(t, Succeeded.IsFailure())
	require.False(t, HandedBack.IsFailure())
	require.True(t, Outcome("of a later version").IsFailure())
}

type killedError struct{ exitError }

func (killedError) ExitCode() int { return -1 }

func TestNewRun_HasNoExitCodeOfASignal(t *testing.T) {
	require.Equal(t, 4, *newRun(executor.RunEnded{Err: exitError{}}).ExitCode)
	require.Nil(t, newRun(executor.RunEnded{Err: killedError{}}).ExitCode)
}
