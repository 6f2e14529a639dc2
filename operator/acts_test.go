package operator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
)

func TestOperator_Acts(t *testing.T) {
	membertest.RunBubble(t, "are on record with the caller, the reason and the time", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		kim := o.As("kim", "quarter end")
		ctx := t.Context()
		require.NoError(t, kim.Pause(ctx, "job"))
		paused := time.Now()
		in, err := o.Intent(ctx, "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Act{At: paused.UTC(), By: "kim", Reason: "quarter end", What: "pause"}, in.HeldBy)
		time.Sleep(time.Second)
		require.NoError(t, o.As("lee", "").StopSchedule(ctx, "job"))
		require.NoError(t, o.Resume(ctx, "job"))
		_, err = kim.Trigger(ctx, "job", "", nil)
		require.NoError(t, err)
		_, err = kim.Trigger(ctx, "job", "", []int{0, 1, 3})
		require.NoError(t, err)
		require.NoError(t, kim.Disable(ctx, operator.Scope{Job: "job", Shards: []int{2, 0}, Instances: []string{"b"}, Hosts: []string{"h"}}))
		require.NoError(t, kim.Enable(ctx, operator.Scope{Job: "job", Shards: []int{0}}))
		require.NoError(t, kim.Reset(ctx, "job"))
		synctest.Wait() // the leader has taken the triggers out of the record
		acts, err := o.Acts(ctx, "job")
		require.NoError(t, err)
		var whats, bys []string
		for _, a := range acts {
			whats, bys = append(whats, a.What), append(bys, a.By)
		}
		assert.Equal(t, []string{
			"pause", "stop schedule", "resume", "trigger 1", "trigger 2 of shards 0-1,3",
			"disable shards 2 0, instances b, hosts h", "enable shards 0", "reset",
		}, whats)
		assert.Equal(t, []string{"kim", "lee", "", "kim", "kim", "kim", "kim", "kim"}, bys)
		assert.Equal(t, paused.UTC(), acts[0].At)
		assert.Equal(t, paused.Add(time.Second).UTC(), acts[1].At)
		in, err = o.Intent(ctx, "job")
		require.NoError(t, err)
		assert.Zero(t, in.HeldBy, "the job is resumed")
	})
	membertest.RunBubble(t, "on all jobs are apart from those on one", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.As("kim", "").Disable(t.Context(), operator.Scope{Hosts: []string{"h"}}))
		all, err := o.Acts(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.Equal(t, "disable hosts h", all[0].What)
		of, err := o.Acts(t.Context(), "job")
		require.NoError(t, err)
		assert.Empty(t, of)
	})
	membertest.RunBubble(t, "are bounded: the oldest are dropped, and long texts are cut", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Pause(t.Context(), "job"))
		for i := range record.MaxActs {
			require.NoError(t, o.As(strings.Repeat("k", 100), strings.Repeat("r", 1000)).Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{i % 4}}))
		}
		acts, err := o.Acts(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, acts, record.MaxActs)
		assert.Equal(t, "disable shards 0", acts[0].What, "the pause is dropped")
		assert.Len(t, acts[0].By, 64)
		assert.Len(t, acts[0].Reason, 256)
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, "pause", in.HeldBy.What, "the act of a pause in force is kept apart")
	})
	membertest.RunBubble(t, "are those of a job that is known", func(t *testing.T, g *membertest.Group) {
		o, _ := g.NewOperator()
		_, err := o.Acts(t.Context(), "nothing")
		assert.ErrorIs(t, err, operator.ErrUnknownJob)
	})
}

func TestOperator_PauseUntil(t *testing.T) {
	membertest.RunBubble(t, "ends by itself, like a resume", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		until := time.Now().Add(2*time.Hour + 30*time.Second)
		require.NoError(t, o.As("kim", "move").PauseUntil(t.Context(), "job", until))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, until.UTC(), in.Until)
		time.Sleep(time.Until(until) - time.Second)
		assert.Empty(t, a.TakeRuns())
		assert.True(t, g.ReadPlan("job").Paused)
		g.Server.Record()
		time.Sleep(2 * time.Second)
		assert.False(t, g.ReadPlan("job").Paused)
		assert.Len(t, g.TakeCommits(), 2, "of the control record and of the plan")
		in, err = o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Intent{Disabled: operator.Scope{Job: "job"}}, in)
		acts, err := o.Acts(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Act{
			At: until.UTC(), By: "the leader", What: fmt.Sprint("resume: the pause lasted until ", until.UTC().Format(time.RFC3339Nano)),
		}, acts[len(acts)-1])
		time.Sleep(time.Minute)
		assert.Equal(t, membertest.OncePerShard(2), membertest.CountRuns(a.TakeRuns()), "the fires of the pause are not made up for")
	})
	membertest.RunBubble(t, "survives a restart of the fleet, and ends at once if its time came meanwhile", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.PauseUntil(t.Context(), "job", time.Now().Add(30*time.Minute)))
		synctest.Wait()
		a.Shutdown()
		time.Sleep(10 * time.Minute)
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, b.TakeRuns())
		b.Shutdown()
		time.Sleep(20 * time.Minute)
		g.Start("c", coordtest.Def("job", 0, 2, ""))
		time.Sleep(time.Second)
		assert.False(t, g.ReadPlan("job").Paused)
	})
	membertest.RunBubble(t, "stays ended under a leader whose clock is behind", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.PauseUntil(t.Context(), "job", time.Now().Add(10*time.Minute)))
		time.Sleep(10*time.Minute + time.Second)
		require.False(t, g.ReadPlan("job").Paused)
		g.SetClock("b", -3*time.Second)
		b := g.Start("b", coordtest.Def("job", 0, 2, ""))
		a.Shutdown()
		time.Sleep(time.Minute)
		require.Equal(t, b.Incarnation(), g.ReadLeader().Incarnation)
		assert.False(t, g.ReadPlan("job").Paused)
	})
	membertest.RunBubble(t, "is replaced by the next pause, resume or stop of the schedule", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		soon := func() time.Time { return time.Now().Add(10 * time.Minute) }
		for _, replace := range []func() error{
			func() error { return o.Pause(t.Context(), "job") },
			func() error { return o.StopSchedule(t.Context(), "job") },
			func() error { return o.PauseUntil(t.Context(), "job", time.Now().Add(time.Hour)) },
		} {
			require.NoError(t, o.PauseUntil(t.Context(), "job", soon()))
			require.NoError(t, replace())
			time.Sleep(15 * time.Minute)
			p := g.ReadPlan("job")
			assert.True(t, p.Paused || p.Stopped)
		}
	})
	membertest.RunBubble(t, "refuses an end that is not in the future", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		assert.ErrorContains(t, o.PauseUntil(t.Context(), "job", time.Now()), `pause "job": the end `)
		assert.ErrorContains(t, o.PauseUntil(t.Context(), "job", time.Time{}), "is not in the future")
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.False(t, in.Paused)
	})
}

// Acts on record are few, and a call that changed nothing would hide one.
func TestActs_CallsThatChangeNothingAreNone(t *testing.T) {
	membertest.RunBubble(t, "and leave the records as they are", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		op, _ := g.NewOperator()
		calls := map[string]func(context.Context, *operator.Operator) error{
			"Resume": func(ctx context.Context, op *operator.Operator) error { return op.Resume(ctx, "job") },
			"Enable": func(ctx context.Context, op *operator.Operator) error {
				return op.Enable(ctx, operator.Scope{Job: "job", Shards: []int{1}, Hosts: []string{"h"}})
			},
			"Override": func(ctx context.Context, op *operator.Operator) error {
				return op.Override(ctx, "job", operator.Override{})
			},
			"Unretire":         func(ctx context.Context, op *operator.Operator) error { return op.Unretire(ctx, "job") },
			"Unretire of none": func(ctx context.Context, op *operator.Operator) error { return op.Unretire(ctx, "nowhere") },
			"ResumeGroup":      func(ctx context.Context, op *operator.Operator) error { return op.ResumeGroup(ctx) },
			"Undrain":          func(ctx context.Context, op *operator.Operator) error { return op.Undrain(ctx, "a") },
			"Enable of all": func(ctx context.Context, op *operator.Operator) error {
				return op.Enable(ctx, operator.Scope{Instances: []string{"a"}})
			},
			"AcknowledgeLoss": func(ctx context.Context, op *operator.Operator) error { return op.AcknowledgeLoss(ctx) },
		}
		for name, call := range calls {
			require.NoError(t, call(t.Context(), op), name)
			require.ErrorIs(t, call(t.Context(), op.ReportingUnchanged()), operator.ErrUnchanged, name)
			for _, job := range []string{"job", ""} {
				acts, err := op.Acts(t.Context(), job)
				require.NoError(t, err)
				assert.Empty(t, acts, name)
			}
		}
		reporting := op.As("kim", "").ReportingUnchanged()
		require.NoError(t, reporting.Retire(t.Context(), "job"))
		require.ErrorIs(t, reporting.Retire(t.Context(), "job"), operator.ErrUnchanged)
		require.NoError(t, reporting.Unretire(t.Context(), "job"))
		require.NoError(t, reporting.Pause(t.Context(), "job"))
		require.NoError(t, reporting.Resume(t.Context(), "job"))
		require.ErrorIs(t, reporting.Resume(t.Context(), "job"), operator.ErrUnchanged)
		acts, err := op.Acts(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, acts, 4)
		assert.Equal(t, "kim", acts[3].By)
		require.NoError(t, op.Pause(t.Context(), "job"))
		require.NoError(t, op.Resume(t.Context(), "job"))
		require.NoError(t, op.Resume(t.Context(), "job"))
		acts, err = op.Acts(t.Context(), "job")
		require.NoError(t, err)
		assert.Len(t, acts, 6)
	})
}
