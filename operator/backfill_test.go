package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_Retry(t *testing.T) {
	minute := func(n int) time.Time { return coordtest.BubbleStart().Add(time.Duration(n) * time.Minute) }
	// failing fails the runs of shards 0 and 2 for the fire of the first minute, and retries that of shard 2 once.
	failing := func(_ context.Context, r claimer.Run) error {
		switch {
		case !r.Fire.Equal(minute(1)) || r.Trigger > 0:
			return nil
		case r.Shard == 0:
			return errors.New("no")
		case r.Shard == 2 && r.Attempt == 1:
			return &claimer.RetryError{In: time.Second, Err: errors.New("not yet")}
		}
		return nil
	}
	membertest.RunBubble(t, "runs the failed shards of the fire again", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", failing, coordtest.Def("job", 0, 3, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		time.Sleep(10 * time.Second)
		a.TakeRuns()
		assert.Equal(t, []int{0}, groupOf(g, a.Compile).Jobs[0].Failing)
		again, err := o.As("kim", "the ledger is back").Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		assert.Equal(t, operator.RetriedRuns{Runs: operator.Runs{Shards: []int{0}, Fire: minute(1).UTC(), Trigger: 1, Attempt: 1}}, again,
			"the retry of shard 2 has succeeded")
		time.Sleep(time.Second)
		runs := a.TakeRuns()
		require.Len(t, runs, 1)
		assert.Equal(t, 0, runs[0].Shard)
		assert.True(t, runs[0].Fire.Equal(minute(1)))
		assert.EqualValues(t, 1, runs[0].Trigger)
		assert.Equal(t, claimer.CauseRetry, runs[0].Cause)
		st, err := o.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.EqualValues(t, 3, st.Counts.Succeeded)
		assert.Empty(t, groupOf(g, a.Compile).Jobs[0].Failing, "the failure stays on record, and a later run has succeeded")
		assert.NotEmpty(t, st.Failures)
		e, err := o.WithCompiler(a.Compile).Explain(t.Context(), "job", 0, minute(1))
		require.NoError(t, err)
		assert.False(t, e.Answers[0].Stops)
		assert.Contains(t, e.Answers[0].Summary, "Later, trigger 1 has run the shard again")
	})
	membertest.RunBubble(t, "that fail again leave the shard failing", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", func(_ context.Context, r claimer.Run) error {
			if r.Fire.Equal(minute(1)) && r.Shard == 0 {
				return errors.New("no")
			}
			return nil
		}, coordtest.Def("job", 0, 3, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		time.Sleep(10 * time.Second)
		_, err := o.Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, []int{0}, groupOf(g, a.Compile).Jobs[0].Failing)
		membertest.SleepToMinute(2)
		time.Sleep(time.Second)
		assert.Empty(t, groupOf(g, a.Compile).Jobs[0].Failing)
	})
	membertest.RunBubble(t, "before a failure do not hide it", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", func(_ context.Context, r claimer.Run) error {
			if r.Trigger == 0 {
				return errors.New("no")
			}
			return nil
		}, coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		_, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		membertest.SleepToMinute(1)
		time.Sleep(time.Second)
		assert.Equal(t, []int{0}, groupOf(g, a.Compile).Jobs[0].Failing)
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		a.Shutdown() // so the trigger is in the plan, and not in the claims of the owner
		membertest.SleepToMinute(2)
		time.Sleep(time.Second)
		assert.Empty(t, groupOf(g, b.Compile).Jobs[0].Failing)
	})
	membertest.RunBubble(t, "also finds what an expired owner failed and lost", func(t *testing.T, g *membertest.Group) {
		def := coordtest.Def("job", 0, 2, `,"on_crash":"count as failed"`)
		g.StartWorking("a", func(ctx context.Context, r claimer.Run) error {
			if r.Shard == 0 {
				return errors.New("no")
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, def)
		membertest.SleepToMinute(1)
		heal := g.Server.Partition("a")
		b := g.Start("b", def)
		time.Sleep(40 * time.Second)
		require.Equal(t, map[string]string{"b": "0-1"}, g.ReadOwners("job"))
		b.TakeRuns()
		o, _ := g.NewOperator()
		again, err := o.Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		assert.Equal(t, []int{0, 1}, again.Shards)
		time.Sleep(time.Second)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(b.TakeRuns()))
		heal()
	})
	membertest.RunBubble(t, "also finds a run that was cancelled while it waited to be made again", func(t *testing.T, g *membertest.Group) {
		def := coordtest.Def("job", 0, 1, "")
		g.StartWorking("a", func(ctx context.Context, _ claimer.Run) error { <-ctx.Done(); return context.Cause(ctx) }, def)
		membertest.SleepToMinute(1)
		time.Sleep(time.Second)
		o, _ := g.NewOperator()
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0}})) // so that the re-run waits
		time.Sleep(time.Second)
		defer g.Server.Partition("a")()
		b := g.Start("b", def)
		time.Sleep(40 * time.Second)
		cancelled, err := o.Cancel(t.Context(), "job", 0)
		require.NoError(t, err)
		assert.Equal(t, 2, cancelled[0].Attempt)
		time.Sleep(time.Second)
		assert.Equal(t, []int{0}, groupOf(g, b.Compile).Jobs[0].Failing)
		e, err := o.WithCompiler(b.Compile).Explain(t.Context(), "job", 0, minute(1))
		require.NoError(t, err)
		assert.Contains(t, e.Answers[0].Summary, "failed: attempt 1 ended")
		assert.Equal(t, "Enable", e.Answers[0].Verb, "a retry would wait")
		assert.Contains(t, e.Answers[0].Do, "remove the cause, then enable the shard, then retry the fire")
		again, err := o.Retry(t.Context(), "job", minute(1), operator.RetryOptions{})
		require.NoError(t, err)
		assert.Equal(t, []int{0}, again.Shards)
	})
	membertest.RunBubble(t, "refuses a fire without failures on record", func(t *testing.T, g *membertest.Group) {
		g.StartWorking("a", failing, coordtest.Def("job", 0, 3, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(2)
		for _, at := range []time.Time{minute(2), minute(1).Add(time.Nanosecond), {}} {
			_, err := o.Retry(t.Context(), "job", at, operator.RetryOptions{})
			assert.ErrorIs(t, err, operator.ErrNoFailure)
		}
		_, err := o.Retry(t.Context(), "job", minute(9), operator.RetryOptions{})
		assert.ErrorIs(t, err, operator.ErrNoFailure)
		assert.ErrorContains(t, err, ": it is in the future")
		_, err = o.WithCompiler(g.Members[0].Compile).Retry(t.Context(), "job", minute(1).Add(time.Nanosecond), operator.RetryOptions{})
		assert.ErrorIs(t, err, operator.ErrNoFailure)
		assert.ErrorContains(t, err, ": the schedule has no fire at that instant")
		_, err = o.Retry(t.Context(), "nothing", minute(1), operator.RetryOptions{})
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
	})
}

func TestOperator_Backfill(t *testing.T) {
	minute := func(n int) time.Time { return coordtest.BubbleStart().Add(time.Duration(n) * time.Minute) }
	compiled := func(g *membertest.Group) *operator.Operator {
		o, _ := g.NewOperator()
		return o.WithCompiler(func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil })
	}
	membertest.RunBubble(t, "runs the fires of the window, so many at a time", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(10*time.Second), coordtest.Def("job", 0, 1, ""))
		b := g.StartWorking("b", membertest.WorkFor(10*time.Second), coordtest.Def("job", 0, 1, ""))
		o := compiled(g)
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		time.Sleep(time.Until(minute(60)))
		want := []time.Time{minute(-3).UTC(), minute(-2).UTC(), minute(-1).UTC()}
		dry, err := o.ListFires(t.Context(), "job", minute(-3), minute(0))
		require.NoError(t, err)
		assert.Equal(t, want, dry)
		fires, err := o.As("kim", "").Backfill(t.Context(), "job", minute(-3), minute(0), 0)
		require.NoError(t, err)
		assert.Equal(t, want, fires)
		time.Sleep(5 * time.Second)
		st, err := o.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, []operator.Backfill{{Number: 1, Parallel: 1, Waiting: want[1:]}}, st.Backfills)
		assert.Equal(t, []uint64{1}, st.Triggers)
		time.Sleep(time.Minute)
		var ran []time.Time
		for _, r := range append(a.TakeRuns(), b.TakeRuns()...) {
			ran = append(ran, r.Fire.UTC())
			assert.Equal(t, claimer.CauseBackfill, r.Cause)
			assert.NotZero(t, r.Trigger)
		}
		assert.Equal(t, want, ran)
		acts, err := o.Acts(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, "kim", acts[1].By)
		assert.Contains(t, acts[1].What, "backfill 1: 3 fires from ")
	})
	membertest.RunBubble(t, "goes on after a change of the leader, and stops when it is to", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(10*time.Second), coordtest.Def("job", 0, 1, ""))
		b := g.StartWorking("b", membertest.WorkFor(10*time.Second), coordtest.Def("job", 0, 1, ""))
		o := compiled(g)
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		time.Sleep(time.Until(minute(60)))
		_, err := o.Backfill(t.Context(), "job", minute(0), minute(10), 1)
		require.NoError(t, err)
		time.Sleep(15 * time.Second)
		require.Equal(t, a.Incarnation(), g.ReadLeader().Incarnation)
		a.Shutdown()
		time.Sleep(31 * time.Second)
		assert.GreaterOrEqual(t, len(a.TakeRuns())+len(b.TakeRuns()), 4)
		dropped, err := o.StopBackfills(t.Context(), "job")
		require.NoError(t, err)
		assert.Positive(t, dropped)
		time.Sleep(30 * time.Second)
		b.TakeRuns()
		time.Sleep(time.Minute)
		assert.Empty(t, b.TakeRuns())
		assert.Empty(t, g.ReadPlan("job").Triggers)
	})
	membertest.RunBubble(t, "is bounded, and names where to split the window", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o := compiled(g)
		require.NoError(t, o.Pause(t.Context(), "job"))
		time.Sleep(time.Until(minute(100)))
		_, err := o.Backfill(t.Context(), "job", minute(0), minute(65), 1)
		require.ErrorIs(t, err, operator.ErrTooManyFires)
		assert.ErrorContains(t, err, "its first 64 end before "+minute(64).UTC().Format(time.RFC3339))
		all, err := o.ListFires(t.Context(), "job", minute(0), minute(65))
		require.NoError(t, err)
		assert.Len(t, all, 65, "ListFires lists more than may wait")
		_, err = o.ListFires(t.Context(), "job", minute(-10_000), minute(65))
		require.ErrorIs(t, err, operator.ErrTooManyFires)
		_, err = o.Backfill(t.Context(), "job", minute(0), minute(64), 1)
		require.NoError(t, err)
		synctest.Wait()
		_, err = o.Backfill(t.Context(), "job", minute(64), minute(66), 1)
		require.ErrorIs(t, err, operator.ErrTooManyFires)
		assert.ErrorContains(t, err, "63 wait already, and these are 2, of at most 64")
	})
	membertest.RunBubble(t, "refuses a window that has no fire, or is not over", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o := compiled(g)
		membertest.SleepToMinute(5)
		for want, window := range map[string][2]time.Time{
			"has no fire from":   {minute(2), minute(2)},
			"after now":          {minute(2), minute(6)},
			"the schedule has n": {minute(1).Add(1), minute(2)},
		} {
			_, err := o.Backfill(t.Context(), "job", window[0], window[1], 1)
			assert.ErrorContains(t, err, want)
		}
		without, _ := g.NewOperator()
		_, err := without.Backfill(t.Context(), "job", minute(1), minute(2), 1)
		assert.ErrorIs(t, err, operator.ErrNoCompiler)
	})
}
