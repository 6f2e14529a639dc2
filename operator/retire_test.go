package operator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestOperator_Retire(t *testing.T) {
	records := func(g *membertest.Group, job string) (left []registry.Key) {
		for _, key := range []registry.Key{g.Keys.Job(job), g.Keys.Plan(job), g.Keys.Control(job), g.Keys.Data(job, 0)} {
			if _, ok := g.GetRecord(key); ok {
				left = append(left, key)
			}
		}
		return left
	}
	membertest.RunBubble(t, "deletes a job, with the states of its shards, once no instance offers it", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		o, _ := g.NewOperator()
		g.PutRecord(g.Keys.Data("job", 0), "state")
		membertest.SleepToMinute(2)
		require.NoError(t, o.As("kim", "tenant left").Retire(t.Context(), "job"))
		a.Withdraw("job")
		time.Sleep(time.Minute)
		assert.Len(t, records(g, "job"), 4, "b offers it")
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, operator.Act{At: in.RetiredBy.At, By: "kim", Reason: "tenant left", What: "retire"}, in.RetiredBy)
		b.Withdraw("job")
		time.Sleep(time.Second)
		assert.Empty(t, records(g, "job"))
		assert.Len(t, records(g, "other"), 2)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, records(g, "job"), "nothing restores it")
		require.ErrorIs(t, o.Retire(t.Context(), "job"), operator.ErrUnknownJob)
	})
	membertest.RunBubble(t, "lets nothing of the job begin, and runs in progress finish", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(90*time.Second), coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		_, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		require.NoError(t, o.Retire(t.Context(), "job"))
		synctest.Wait()
		assert.Len(t, a.TakeRuns(), 1)
		a.Withdraw("job")
		time.Sleep(time.Minute)
		assert.NotEmpty(t, records(g, "job"), "a run is in progress")
		time.Sleep(time.Minute)
		assert.Empty(t, records(g, "job"))
		assert.Empty(t, a.TakeRuns(), "neither the trigger nor a fire")
	})
	membertest.RunBubble(t, "refuses other changes meanwhile, and triggers above all", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Retire(t.Context(), "job"))
		_, err := o.Trigger(t.Context(), "job", "", nil)
		require.ErrorIs(t, err, operator.ErrRetiring)
		require.ErrorIs(t, o.Resume(t.Context(), "job"), operator.ErrRetiring)
		_, err = o.Cancel(t.Context(), "job")
		require.ErrorIs(t, err, operator.ErrNotRunning, "runs in progress may be cancelled")
	})
	membertest.RunBubble(t, "changes nothing when it is repeated", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.As("kim", "").Retire(t.Context(), "job", "job"))
		synctest.Wait()
		g.Server.Record()
		require.NoError(t, o.As("lee", "").Retire(t.Context(), "job"))
		assert.Empty(t, g.TakeCommits())
	})
	membertest.RunBubble(t, "is not ended by an instance that registers the job, but by Unretire", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Retire(t.Context(), "job"))
		a.Withdraw("job")
		synctest.Wait()
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 1, 1, "")))
		time.Sleep(2 * time.Minute)
		assert.Empty(t, append(a.TakeRuns(), b.TakeRuns()...))
		require.NoError(t, o.Unretire(t.Context(), "job", "nobody knows it"))
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, append(a.TakeRuns(), b.TakeRuns()...))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, in.RetiredBy)
	})
	membertest.RunBubble(t, "leaves a paused job paused after Unretire", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""), coordtest.Def("stopped", 0, 1, ""))
		o, _ := g.NewOperator()
		require.NoError(t, o.Pause(t.Context(), "job"))
		require.NoError(t, o.StopSchedule(t.Context(), "stopped"))
		require.NoError(t, o.Retire(t.Context(), "job", "stopped"))
		time.Sleep(time.Minute)
		assert.True(t, g.ReadPlan("stopped").Paused)
		require.NoError(t, o.Unretire(t.Context(), "job", "stopped"))
		time.Sleep(2 * time.Minute)
		assert.True(t, g.ReadPlan("job").Paused)
		assert.True(t, g.ReadPlan("stopped").Stopped)
		assert.Empty(t, a.TakeRuns())
	})
	membertest.RunBubble(t, "needs no process that goes on: the next leader deletes the job", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(1)
		require.NoError(t, o.Retire(t.Context(), "job"))
		defer g.Server.Partition("a")()
		time.Sleep(time.Minute)
		require.NotEmpty(t, records(g, "job"), "there is no leader: "+a.Instance())
		g.Start("b")
		time.Sleep(2 * time.Minute)
		assert.Empty(t, records(g, "job"))
	})
	membertest.RunBubble(t, "retires many jobs in few commits, and names each that fails", func(t *testing.T, g *membertest.Group) {
		var defs, names []string
		for i := range 295 {
			names = append(names, fmt.Sprintf("tenant-%03d", i))
			defs = append(defs, coordtest.Def(names[i], 0, 1, ""))
		}
		a := g.Start("a", defs...)
		time.Sleep(time.Second)
		a.Withdraw(names...)
		time.Sleep(time.Minute)
		o, _ := g.NewOperator()
		g.Server.Record()
		err := o.Retire(t.Context(), append(names, "x", "y")...)
		require.ErrorIs(t, err, operator.ErrUnknownJob)
		assert.EqualError(t, err, "retire \"x\": unknown job\nretire \"y\": unknown job")
		time.Sleep(time.Second)
		assert.LessOrEqual(t, len(g.TakeCommits()), 2*(295/25+1), "of the operator and of the leader")
		left, err := o.JobNames(t.Context())
		require.NoError(t, err)
		assert.Empty(t, left)
	})
	membertest.RunBubble(t, "keeps what another operator changes at the same time", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o, reg := g.NewOperator()
		other, err := operator.New(g.Server.Client("other"), "test", "")
		require.NoError(t, err)
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Control("job")), func() { require.NoError(t, other.Pause(t.Context(), "job")) }))
		require.NoError(t, o.Retire(t.Context(), "job"))
		in, err := o.Intent(t.Context(), "job")
		require.NoError(t, err)
		assert.True(t, in.Paused)
		assert.NotZero(t, in.RetiredBy)
	})
	membertest.RunBubble(t, "deletes nothing during a rolling deployment until the last old process has gone", func(t *testing.T, g *membertest.Group) {
		old := map[string]*membertest.Worker{}
		for _, name := range []string{"a", "b", "c"} {
			old[name] = g.Start(name, coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		}
		o, _ := g.NewOperator()
		require.NoError(t, o.Retire(t.Context(), "job"))
		old["a"].Shutdown()
		g.Start("a", coordtest.Def("other", 0, 2, ""))
		time.Sleep(time.Minute)
		old["b"].Shutdown()
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, "")) // crashes before its turn
		time.Sleep(2 * time.Minute)
		assert.Len(t, records(g, "job"), 3)
		for _, r := range b.TakeRuns() {
			assert.NotEqual(t, "job", r.Job, "it stays retiring")
		}
		for _, w := range []*membertest.Worker{b, old["c"]} {
			w.Shutdown()
			g.Start(w.Instance(), coordtest.Def("other", 0, 2, ""))
		}
		time.Sleep(time.Second)
		assert.Empty(t, records(g, "job"))
		c := g.Start("late", coordtest.Def("job", 0, 2, ""))
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, c.TakeRuns(), "it is a new job")
	})
	membertest.RunBubble(t, "waits for an instance that restarts under its grace", func(t *testing.T, g *membertest.Group) {
		g.Grace = time.Minute
		g.Start("a", coordtest.Def("other", 0, 1, ""))
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		time.Sleep(time.Second)
		b.Shutdown()
		require.NoError(t, o.Retire(t.Context(), "job"))
		time.Sleep(50 * time.Second)
		assert.Len(t, records(g, "job"), 3)
		time.Sleep(20 * time.Second)
		assert.Empty(t, records(g, "job"))
	})
	membertest.RunBubble(t, "stores the definition again for an instance that had found it stored", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("other", 0, 1, ""))
		c := g.Start("c", coordtest.Def("job", 0, 1, ""))
		b := g.NewWorker("b", nil, coordtest.Def("job", 0, 1, ""))
		joins := make(chan struct{})
		b.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Instance("b")), func() { <-joins }))
		g.RunWorker(b)
		synctest.Wait()
		o, _ := g.NewOperator()
		require.NoError(t, o.Retire(t.Context(), "job"))
		c.Withdraw("job")
		time.Sleep(time.Second)
		require.Empty(t, records(g, "job"))
		close(joins)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
		_, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err, "the job is a new one")
	})
	membertest.RunBubble(t, "keeps jobs that follow it, and names the cause there", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""), coordtest.Def("next", 0, 1, `,"schedule":"after job"`))
		o, _ := g.NewOperator()
		membertest.SleepToMinute(2)
		require.NoError(t, o.Retire(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.Equal(t, `follows job "job", which is retiring`, g.ReadPlan("next").Problem)
		a.Withdraw("job")
		time.Sleep(time.Minute)
		assert.Empty(t, records(g, "job"))
		assert.Equal(t, `follows job "job", which has no definition`, g.ReadPlan("next").Problem)
	})
	membertest.RunBubble(t, "returns the cause of a context that has ended", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		require.Error(t, o.Retire(ctx, "job"))
	})
}
