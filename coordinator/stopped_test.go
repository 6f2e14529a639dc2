package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestOperator_StopSchedule(t *testing.T) {
	trigger := func(g *group, o *Operator, job string) uint64 {
		g.t.Helper()
		n, err := o.Trigger(g.t.Context(), job, "by hand", nil)
		require.NoError(g.t, err)
		time.Sleep(time.Second)
		return n
	}
	for _, level := range []string{"runs", "claims"} {
		tracking := fmt.Sprintf(`,"tracking":%q`, level)
		bubble(t, "runs triggers and no fires, of a job that tracks "+level, func(t *testing.T, g *group) {
			a := g.start("a", def("job", 0, 2, tracking))
			o, _ := g.operator()
			until(1)
			require.Len(t, a.began(), 2)
			require.NoError(t, o.StopSchedule(t.Context(), "job"))
			until(10)
			assert.Empty(t, a.began())
			n := trigger(g, o, "job")
			runs := a.began()
			assert.Equal(t, once(2), shards(runs))
			for _, r := range runs {
				assert.Equal(t, n, r.Trigger)
				assert.Equal(t, "by hand", r.Param)
			}
			require.NoError(t, o.Resume(t.Context(), "job"))
			until(11)
			assert.Equal(t, once(2), shards(a.began()), "nothing is made up for")
		})
	}
	bubble(t, "of a new job lets it run by hand first", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, `,"start_paused":true`))
		o, _ := g.operator()
		trigger(g, o, "job")
		assert.Empty(t, a.began(), "it is paused")
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		until(3)
		assert.Equal(t, once(2), shards(a.began()), "what was triggered")
	})
	bubble(t, "is what stands, in place of a pause, and a pause in place of it", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		o, _ := g.operator()
		stands := func() []bool {
			time.Sleep(time.Second)
			st, err := o.Status(t.Context(), "job")
			require.NoError(t, err)
			return []bool{st.Intent.Paused, st.Intent.ScheduleStopped, st.Paused, st.ScheduleStopped}
		}
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		assert.Equal(t, []bool{false, true, false, true}, stands())
		require.NoError(t, o.Pause(t.Context(), "job"))
		assert.Equal(t, []bool{true, false, true, false}, stands())
		trigger(g, o, "job")
		assert.Empty(t, a.began())
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		assert.Equal(t, []bool{false, true, false, true}, stands())
		assert.Equal(t, once(2), shards(a.began()))
		require.NoError(t, o.Resume(t.Context(), "job"))
		assert.Equal(t, []bool{false, false, false, false}, stands())
		until(2)
		assert.Equal(t, map[int]int{0: 2, 1: 2}, shards(a.began()))
	})
	bubble(t, "takes up a new definition for triggers, whose fires begin with the resume", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 1, 2, ""))
		o, _ := g.operator()
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		until(2)
		a.began()
		a.Offer(offering(def("job", 2, 3, "")))
		time.Sleep(2 * time.Second)
		trigger(g, o, "job")
		runs := a.began()
		assert.Equal(t, once(3), shards(runs))
		for _, r := range runs {
			assert.Equal(t, 3, r.Shards)
		}
		until(5)
		assert.Empty(t, a.began())
		require.NoError(t, o.Resume(t.Context(), "job"))
		until(6)
		assert.Equal(t, once(3), shards(a.began()))
		time.Sleep(2 * selfDiagnosis)
		assert.Len(t, g.plan("job").Epochs, 1, "those before have been cleared")
	})
	bubble(t, "runs what a crash ended, and what came due before", func(t *testing.T, g *group) {
		g.startWorking("a", takes(time.Hour), def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		until(1)
		b.began()
		require.NoError(t, b.StopSchedule(t.Context(), "job"))
		until(2)
		g.server.Expire("a")
		time.Sleep(30 * time.Second)
		runs := b.began()
		require.Len(t, runs, 1)
		assert.True(t, runs[0].Rerun)
		assert.Equal(t, 2, runs[0].Attempt)
		assert.Equal(t, bubbleBegan().Add(time.Minute), runs[0].Fire)
	})
	bubble(t, "outlives the leader", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		require.NoError(t, a.StopSchedule(t.Context(), "job"))
		time.Sleep(time.Second)
		a.goes()
		b := g.start("b", def("job", 0, 2, ""))
		until(3)
		assert.Empty(t, b.began())
		trigger(g, b.Operator, "job")
		assert.Equal(t, once(2), shards(b.began()))
	})
	bubble(t, "of a job that has no plan yet holds from its first plan", func(t *testing.T, g *group) {
		g.put(g.keys.Job("job"), def("job", 0, 2, ""))
		o, _ := g.operator()
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		a := g.start("a", def("job", 0, 2, ""))
		trigger(g, o, "job")
		until(2)
		runs := a.began()
		assert.Equal(t, once(2), shards(runs))
		for _, r := range runs {
			assert.NotZero(t, r.Trigger)
		}
	})
	bubble(t, "leaves the plan alone while nothing changes", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		o, _ := g.operator()
		require.NoError(t, o.StopSchedule(t.Context(), "job"))
		time.Sleep(2 * selfDiagnosis)
		before, _ := g.get(g.keys.Plan("job"))
		time.Sleep(10 * selfDiagnosis)
		after, _ := g.get(g.keys.Plan("job"))
		assert.Equal(t, before.Modified, after.Modified)
	})
}

func TestPlan_StoppedSchedule(t *testing.T) {
	setUp := func(t *testing.T) (*world, string) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 2, 1, "")
		w.settle()
		w.v.now = at(5)
		w.intend("job", func(c *record.Control) { c.Stopped = true })
		w.settle()
		return w, a
	}
	t.Run("ends the epochs, and a resume begins one from when no clock has come to", func(t *testing.T) {
		w, _ := setUp(t)
		require.Len(t, w.plan("job").Epochs, 1)
		assert.Equal(t, at(5), w.plan("job").Last().Until)
		w.v.now = at(9)
		w.intend("job", func(c *record.Control) { c.Stopped = false })
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, at(5), p.Epochs[0].Until)
		assert.Equal(t, at(9).Add(5*time.Second), p.Epochs[1].From)
		assert.Zero(t, p.Epochs[1].Until)
	})
	t.Run("has a new definition hold for no fire, also of those that were claimed ahead", func(t *testing.T) {
		w, a := setUp(t)
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = record.Marks{{Shards: shardset.Of(0), Mark: record.Mark{Gen: 1, Fire: at(5).Add(2 * time.Second), Attempt: 1}}}
		})
		w.define("job", 3, 2, "")
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 2)
		assert.Equal(t, at(5), p.Epochs[0].Until, "what is owed stays as it was")
		assert.Equal(t, at(5).Add(2*time.Second)+1, p.Epochs[1].From)
		assert.Equal(t, p.Epochs[1].From, p.Epochs[1].Until)
	})
	t.Run("takes up a definition after looks at all owners alone", func(t *testing.T) {
		w, a := setUp(t)
		w.define("job", 3, 2, "")
		clear(w.v.looks)
		d := decide(w.v)
		assert.Empty(t, d.changes)
		assert.Equal(t, []string{a}, d.looks)
	})
	t.Run("takes up a definition that comes with it by another change", func(t *testing.T) {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 2, 1, "")
		w.settle()
		w.define("job", 3, 2, "")
		w.intend("job", func(c *record.Control) { c.Stopped = true })
		w.round()
		assert.True(t, w.plan("job").Stopped)
		assert.Len(t, w.plan("job").Epochs, 1)
		w.round()
		assert.Len(t, w.plan("job").Epochs, 2)
	})
	t.Run("keeps epochs in order where it comes just after a resume", func(t *testing.T) {
		w, _ := setUp(t)
		w.v.now = at(9)
		w.intend("job", func(c *record.Control) { c.Stopped = false })
		w.settle()
		w.v.now = at(9).Add(time.Second)
		w.intend("job", func(c *record.Control) { c.Stopped = true })
		w.settle()
		w.define("job", 3, 2, "")
		w.settle()
		p := w.plan("job")
		require.Len(t, p.Epochs, 3)
		assert.Equal(t, p.Epochs[1].From, p.Epochs[2].From)
	})
	t.Run("is in the first plan of a job", func(t *testing.T) {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 2, 1, "")
		w.intend("job", func(c *record.Control) { c.Stopped = true })
		w.round()
		p := w.plan("job")
		assert.True(t, p.Stopped)
		assert.Equal(t, p.Last().From, p.Last().Until)
	})
	t.Run("begins no epoch for a definition of a lower revision", func(t *testing.T) {
		w, _ := setUp(t)
		w.define("job", 3, 0, "")
		w.settle()
		assert.Len(t, w.plan("job").Epochs, 1)
	})
	t.Run("keeps no more definitions than a plan may have", func(t *testing.T) {
		w, _ := setUp(t)
		for i := range maxEpochs + 2 {
			w.intend("job", func(c *record.Control) {
				c.Triggers = []record.Trigger{{Number: uint64(i + 1), At: w.v.now}}
			})
			w.settle()
			w.define("job", 2, i+2, "")
			w.settle()
			w.v.now = w.v.now.Add(time.Minute)
		}
		assert.Len(t, w.plan("job").Epochs, maxEpochs)
		assert.Contains(t, w.plan("job").Problem, "a new definition waits")
	})
}
