package operator_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestOperator_Forget(t *testing.T) {
	// records returns the keys of all records of a job that are left.
	records := func(g *membertest.Group, job string) (left []registry.Key) {
		for _, key := range []registry.Key{g.Keys.Job(job), g.Keys.Plan(job), g.Keys.Control(job), g.Keys.Data(job, 0)} {
			if _, ok := g.GetRecord(key); ok {
				left = append(left, key)
			}
		}
		return left
	}
	membertest.RunBubble(t, "deletes all records of a job that no instance offers", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("other", 0, 2, ""))
		b := g.Start("b", coordtest.Def("job", 0, 2, ""), coordtest.Def("other", 0, 2, ""))
		o, _ := g.NewOperator()
		_, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		g.PutRecord(g.Keys.Data("job", 0), "state")
		membertest.SleepToMinute(2)
		b.Shutdown()
		time.Sleep(time.Minute)
		require.NoError(t, o.Forget(t.Context(), "job"))
		assert.Empty(t, records(g, "job"))
		_, err = o.Status(t.Context(), "job")
		require.ErrorIs(t, err, operator.ErrUnknownJob)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, records(g, "job"), "nothing restores it")
		assert.Len(t, records(g, "other"), 2)
		require.ErrorIs(t, o.Forget(t.Context(), "job"), operator.ErrUnknownJob)
	})
	membertest.RunBubble(t, "refuses while an instance offers the job, and names it", func(t *testing.T, g *membertest.Group) {
		g.Start("a", coordtest.Def("other", 0, 2, ""))
		g.Start("b", coordtest.Def("job", 0, 2, ""))
		g.Start("c", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		g.Server.Record()
		err := o.Forget(t.Context(), "job")
		require.ErrorIs(t, err, operator.ErrOffered)
		assert.EqualError(t, err, `forget "job": the job is in use: b offers it, c offers it`)
		assert.Empty(t, g.TakeCommits(), "nothing is written")
	})
	membertest.RunBubble(t, "refuses while an instance that has withdrawn its offer still owns shards", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(90*time.Second), coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		a.Withdraw("job")
		synctest.Wait()
		o, _ := g.NewOperator()
		err := o.Forget(t.Context(), "job")
		require.ErrorIs(t, err, operator.ErrOffered)
		assert.ErrorContains(t, err, "a owns shards of it")
		time.Sleep(2 * time.Minute)
		require.NoError(t, o.Forget(t.Context(), "job"))
		a.Offer(membertest.DefinitionsByName(coordtest.Def("job", 0, 1, "")))
		a.TakeRuns()
		time.Sleep(2 * time.Minute)
		assert.NotEmpty(t, a.TakeRuns(), "it can be offered again by the same incarnation, as a new job")
		n, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		var numbers []uint64
		for _, r := range a.TakeRuns() {
			numbers = append(numbers, r.Trigger)
		}
		assert.Contains(t, numbers, n)
	})
	membertest.RunBubble(t, "leaves nothing behind that stops members which offer the job again later", func(t *testing.T, g *membertest.Group) {
		b := g.Start("b", coordtest.Def("job", 0, 4, ""))
		o, _ := g.NewOperator()
		for range 3 { // each begins an epoch
			require.NoError(t, o.Pause(t.Context(), "job"))
			time.Sleep(time.Second)
			require.NoError(t, o.Resume(t.Context(), "job"))
			time.Sleep(2 * time.Minute)
			_, err := o.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		b.Withdraw("job")
		synctest.Wait()
		require.NoError(t, o.Forget(t.Context(), "job"))
		g.Start("a", coordtest.Def("job", 0, 4, ""))
		_, err := o.Trigger(t.Context(), "job", "", nil)
		for ; errors.Is(err, operator.ErrUnknownJob); _, err = o.Trigger(t.Context(), "job", "", nil) {
			time.Sleep(10 * time.Millisecond)
		}
		require.NoError(t, err)
		time.Sleep(time.Minute)
		b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 0, 4, "")))
		time.Sleep(10 * time.Second)
		require.Contains(t, g.ReadOwners("job"), "b")
		b.TakeRuns()
		last, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		membertest.SleepToMinute(16)
		var scheduled, triggered int
		for _, r := range b.TakeRuns() {
			if r.Trigger == last {
				triggered++
			} else if r.Trigger == 0 {
				scheduled++
			}
		}
		assert.Positive(t, scheduled)
		assert.Equal(t, 2, triggered)
	})
	membertest.RunBubble(t, "lets the numbers of triggers go on while a member lives that has claimed some", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		o, _ := g.NewOperator()
		first, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		a.Withdraw("job")
		synctest.Wait()
		require.NoError(t, o.Forget(t.Context(), "job"))
		g.PutRecord(g.Keys.Job("job"), coordtest.Def("job", 0, 1, ""))
		next, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		assert.Greater(t, next, first)
	})
	membertest.RunBubble(t, "lets them go on if the new job has fewer shards", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 2, ""))
		o, _ := g.NewOperator()
		first, err := o.Trigger(t.Context(), "job", "", []int{1})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		a.Withdraw("job")
		synctest.Wait()
		require.NoError(t, o.Forget(t.Context(), "job"))
		b := g.Start("b", coordtest.Def("job", 0, 1, ""))
		time.Sleep(time.Minute)
		b.Offer(membertest.DefinitionsByName(coordtest.Def("job", 1, 1, ""))) // the next epoch drops the watermark of shard 1
		time.Sleep(3 * time.Minute)
		require.Empty(t, g.ReadPlan("job").Watermarks.Split(shardset.Of(1))[0].Watermark)
		next, err := o.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		assert.Greater(t, next, first)
	})
	membertest.RunBubble(t, "of a fleet that has crashed takes the claims of its owners along", func(t *testing.T, g *membertest.Group) {
		a := g.StartWorking("a", membertest.WorkFor(time.Minute), coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(1)
		inc := a.Incarnation()
		defer g.Server.Partition("a")()
		time.Sleep(30 * time.Second)
		require.NotEmpty(t, g.ReadPlan("job").Owners)
		o, _ := g.NewOperator()
		require.NoError(t, o.Forget(t.Context(), "job"))
		assert.Empty(t, records(g, "job"))
		_, left := g.GetRecord(g.Keys.Claims(inc, "job"))
		assert.False(t, left)
	})
	membertest.RunBubble(t, "takes along what an operator asks for at the same time", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a.Shutdown()
		o, reg := g.NewOperator()
		other, err := operator.New(g.Server.Client("other"), "test", "")
		require.NoError(t, err)
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Plan("job")), func() { require.NoError(t, other.Pause(t.Context(), "job")) }))
		require.NoError(t, o.Forget(t.Context(), "job"))
		assert.Empty(t, records(g, "job"))
	})
	membertest.RunBubble(t, "is refused if an instance joins with the job at the same time", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a.Shutdown()
		o, reg := g.NewOperator()
		reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Plan("job")), func() { g.Start("b", coordtest.Def("job", 0, 1, "")) }))
		require.ErrorIs(t, o.Forget(t.Context(), "job"), operator.ErrOffered)
		assert.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "stores the definition again for an instance that had found it stored", func(t *testing.T, g *membertest.Group) {
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		a.Shutdown()
		b := g.NewWorker("b", nil, coordtest.Def("job", 0, 1, ""))
		joins := make(chan struct{})
		b.Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Instance("b")), func() { <-joins }))
		g.RunWorker(b)
		synctest.Wait()
		o, _ := g.NewOperator()
		forgotten := make(chan error)
		go func() { forgotten <- o.Forget(context.WithoutCancel(t.Context()), "job") }()
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, records(g, "job"))
		close(joins)
		require.ErrorIs(t, <-forgotten, operator.ErrOffered)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0"}, g.ReadOwners("job"))
	})
	membertest.RunBubble(t, "takes each live instance with claims as an owner, if the plan cannot be read", func(t *testing.T, g *membertest.Group) {
		g.Start("b")
		a := g.Start("a", coordtest.Def("job", 0, 1, ""))
		membertest.SleepToMinute(2)
		a.Shutdown()
		claims := g.Keys.Claims(g.ReadLeader().Incarnation, "job")
		g.PutRecord(claims, `{"job":"job"}`)
		reg := &damaged{Registry: g.NewEditor(), values: map[registry.Key]string{g.Keys.Plan("job"): "{"}} // the leader would restore it
		o, err := operator.New(reg, "test", "")
		require.NoError(t, err)
		require.ErrorIs(t, o.Forget(t.Context(), "job"), operator.ErrOffered)
		g.RemoveRecord(claims)
		require.NoError(t, o.Forget(t.Context(), "job"))
		assert.Empty(t, records(g, "job"))
	})
}
