package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

func TestOperator_StatusOfShards(t *testing.T) {
	status := func(g *group) Status {
		g.t.Helper()
		o, _ := g.operator()
		st, err := o.Status(g.t.Context(), "job")
		require.NoError(g.t, err)
		return st
	}
	minute := func(n int) time.Time { return bubbleBegan().Add(time.Duration(n) * time.Minute) }

	bubble(t, "shows owner, last fire, last trigger and whether it runs, by plan and claims", func(t *testing.T, g *group) {
		long := func(ctx context.Context, r Run) error {
			if r.Shard == 3 && r.Trigger == 0 {
				return takes(time.Hour)(ctx, r)
			}
			return nil
		}
		a := g.startWorking("a", long, def("job", 0, 4, ""))
		b := g.startWorking("b", long, def("job", 0, 4, ""))
		until(1)
		assert.Zero(t, status(g).Triggers)
		n, err := a.Trigger(t.Context(), "job", "", []int{1, 3})
		require.NoError(t, err)
		require.NoError(t, b.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		until(2)
		assert.Equal(t, []ShardStatus{
			{Shard: 0, Owner: "a", LastFire: minute(2), Attempt: 0},
			{Shard: 1, Owner: "a", LastFire: minute(2), Attempt: 1, LastTrigger: n},
			{Shard: 2, Owner: "b", LastFire: minute(2), Attempt: 1},
			{Shard: 3, Owner: "b", LastFire: minute(1), Attempt: 1, Running: true},
		}, status(g).PerShard)
		b.leave()
		<-b.done
		time.Sleep(time.Second)
		assert.Equal(t, ShardStatus{Shard: 3, Owner: "a", LastFire: minute(1), Attempt: 2, Running: true}, status(g).PerShard[3])
	})
	bubble(t, "leaves out triggers and re-runs that are done, and keeps those that wait or run", func(t *testing.T, g *group) {
		a := g.startWorking("a", func(ctx context.Context, r Run) error {
			if r.Param == "long" || r.Fire.Equal(minute(1)) && r.Attempt == 1 {
				return takes(10*time.Second)(ctx, r)
			}
			return nil
		}, def("job", 0, 2, ""))
		trigger := func(param string, shards []int) uint64 {
			n, err := a.Trigger(t.Context(), "job", param, shards)
			require.NoError(t, err)
			time.Sleep(time.Second)
			return n
		}
		done := trigger("", nil)
		runs := trigger("long", []int{1})
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		waits := trigger("", nil)
		require.Len(t, g.plan("job").Triggers, 3, "no leader has cleared them yet")
		assert.NotContains(t, status(g).Triggers, done)
		assert.Equal(t, []uint64{runs, waits}, status(g).Triggers)
		time.Sleep(12 * time.Second)
		assert.Equal(t, []uint64{waits}, status(g).Triggers)
		require.NoError(t, a.Enable(t.Context(), Scope{Job: "job", Shards: []int{0}}))
		time.Sleep(time.Second)
		assert.Empty(t, status(g).Triggers)
	})
	bubble(t, "leaves out re-runs that have been claimed", func(t *testing.T, g *group) {
		g.startWorking("a", takes(time.Hour), def("job", 0, 1, ""))
		b := g.start("b", def("job", 0, 1, ""))
		until(1)
		g.server.Expire("a")
		time.Sleep(100 * time.Millisecond)
		require.NotEmpty(t, g.plan("job").Reruns, "no leader has cleared it yet")
		require.NotEmpty(t, b.began())
		assert.Empty(t, status(g).Reruns)
	})
	bubble(t, "names the leader and its term, and none where there is none", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 1, ""))
		g.start("b", def("job", 0, 1, ""))
		first := status(g).Leader
		assert.Equal(t, "a", first.Instance)
		e, _ := g.get(g.keys.Leader())
		assert.Equal(t, e.Modified.Seq, first.Term)
		a.goes()
		second := status(g).Leader
		assert.Equal(t, "b", second.Instance)
		assert.Greater(t, second.Term, first.Term)
		g.members[0].goes()
		assert.Zero(t, status(g).Leader)
	})
	bubble(t, "has the schedule in force, and the next fire if it knows the schedules", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 1, 1, `,"schedule":"every 1m"`))
		st := status(g)
		assert.Equal(t, "every 1m", st.Schedule)
		assert.Zero(t, st.NextFire)
		st, err := a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
		o, _ := g.operator()
		st, err = o.WithCompiler(a.Compile).Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
		require.NoError(t, a.Pause(t.Context(), "job"))
		time.Sleep(time.Second)
		st, err = a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, st.NextFire, "it is paused")
		require.NoError(t, a.Resume(t.Context(), "job"))
		time.Sleep(58*time.Second - time.Since(bubbleBegan()))
		st, err = a.Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Equal(t, minute(1), st.NextFire)
	})
}

func TestNextFire(t *testing.T) {
	began := bubbleBegan()
	at := func(d time.Duration) record.Instant { return record.InstantOf(began.Add(d)) }
	minutes := func(json.RawMessage) (Program, error) { return minutely{}, nil }
	plan := func(epochs ...record.Epoch) *record.Plan { return &record.Plan{Epochs: epochs} }
	paused := plan(record.Epoch{Gen: 1, Until: at(150 * time.Second)})
	paused.Paused = true
	stopped := plan(paused.Epochs...)
	stopped.Stopped = true
	for rule, c := range map[string]struct {
		plan *record.Plan
		want time.Time
	}{
		"is after now":                             {plan(record.Epoch{Gen: 1}), began.Add(time.Minute)},
		"is of an epoch that has begun by then":    {plan(record.Epoch{Gen: 1, From: at(90 * time.Second)}), began.Add(2 * time.Minute)},
		"may be the first instant of an epoch":     {plan(record.Epoch{Gen: 1, From: at(2 * time.Minute)}), began.Add(2 * time.Minute)},
		"is of no epoch that has ended by then":    {plan(record.Epoch{Gen: 1, Until: at(time.Second)}, record.Epoch{Gen: 2, From: at(150 * time.Second)}), began.Add(3 * time.Minute)},
		"is none while the job is paused":          {paused, time.Time{}},
		"is none while the schedule is stopped":    {stopped, time.Time{}},
		"is the first of epochs that follow later": {plan(record.Epoch{Gen: 1, Until: at(90 * time.Second)}, record.Epoch{Gen: 2, From: at(90 * time.Second)}), began.Add(time.Minute)},
	} {
		t.Run(rule, func(t *testing.T) {
			assert.Equal(t, c.want, nextFire(c.plan, minutes, began))
		})
	}
	t.Run("passes over epochs whose definition does not compile", func(t *testing.T) {
		none := func(json.RawMessage) (Program, error) { return nil, errors.New("unknown word") }
		assert.Zero(t, nextFire(plan(record.Epoch{Gen: 1}), none, began))
	})
}
