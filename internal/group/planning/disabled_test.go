package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_DisabledShards(t *testing.T) {
	disable := func(shards ...int) func(*record.Control) {
		return func(c *record.Control) { c.Disabled = shardset.Of(shards...) }
	}
	setUp := func(t *testing.T) (*world, string) {
		w := NewWorld(t)
		a := w.Join("a", "job")
		w.Define("job", 4, 1, "")
		w.Settle()
		return w, a
	}
	t.Run("enter and leave the plan, and stay with their owner", func(t *testing.T) {
		w, a := setUp(t)
		w.editControl("job", disable(1, 3))
		require.Len(t, w.round().Changes, 1)
		assert.Equal(t, "1,3", w.Plan("job").Disabled.String())
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		require.Empty(t, w.decide().Changes)
		w.editControl("job", disable(3))
		w.Settle()
		assert.Equal(t, "3", w.Plan("job").Disabled.String())
		w.editControl("job", disable())
		w.Settle()
		assert.True(t, w.Plan("job").Disabled.IsZero())
		assert.Len(t, w.Plan("job").Epochs, 1)
	})
	t.Run("of a new job are in its first plan", func(t *testing.T) {
		w := NewWorld(t)
		w.Join("a", "job")
		w.Define("job", 4, 1, "")
		w.editControl("job", disable(2))
		w.round()
		assert.Equal(t, "2", w.Plan("job").Disabled.String())
	})
	t.Run("change while the job is paused, too", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Paused = true })
		w.Settle()
		w.editControl("job", disable(0))
		w.Settle()
		assert.Equal(t, "0", w.Plan("job").Disabled.String())
		assert.True(t, w.Plan("job").Paused)
	})
	t.Run("stay disabled after the control record is lost", func(t *testing.T) {
		w, _ := setUp(t)
		w.editControl("job", disable(0))
		w.Settle()
		delete(w.View.Control, "job")
		w.Settle()
		assert.Equal(t, "0", w.Plan("job").Disabled.String())
	})
	t.Run("beyond the total are disabled again when it grows", func(t *testing.T) {
		w, a := setUp(t)
		w.editControl("job", disable(3))
		w.Settle()
		w.Define("job", 2, 2, "")
		w.Settle()
		w.View.Now, w.View.SlowTick = coordtest.At(1), true
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 4), record.Watermark{Epoch: 1, Fire: w.Plan("job").Epochs[0].Until})
		})
		w.Settle()
		require.Len(t, w.Plan("job").Epochs, 1)
		require.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		w.Define("job", 4, 3, "")
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.Equal(t, "3", w.Plan("job").Disabled.String())
	})
	t.Run("move and fail over as others do, with their runs", func(t *testing.T) {
		w, a := setUp(t)
		w.startRuns(a, "job", shardset.Of(1), coordtest.Fire(1, 1))
		w.editControl("job", disable(0, 1))
		w.Settle()
		w.expire(a)
		b := w.Join("b", "job")
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, record.Runs{}.With(shardset.Of(1), coordtest.Fire(1, 2)), w.Plan("job").Reruns)
		w.View.SlowTick = true
		w.Settle()
		assert.NotEmpty(t, w.Plan("job").Reruns, "it waits")
	})
	t.Run("delay new definitions while a re-run and later fires wait, and the plan names the problem", func(t *testing.T) {
		w, a := setUp(t)
		w.View.SlowTick = true
		w.startRuns(a, "job", shardset.Of(3), coordtest.Fire(1, 1))
		w.editControl("job", disable(3))
		w.expire(a)
		b := w.Join("b", "job")
		w.Settle()
		pass := func(n int, shards shardset.Set) {
			w.claim(b, "job", func(c *record.Claims) {
				c.Watermarks = c.Watermarks.Raise(shards, record.Watermark{Epoch: w.Plan("job").Last().Number, Fire: coordtest.At(n)})
			})
			w.Settle()
		}
		n := 10
		for ; n < 10+2*maxEpochs; n++ {
			w.View.Now = coordtest.At(n)
			w.Define("job", 4, n, "")
			w.Settle()
			pass(n, shardset.Range(0, 3))
		}
		require.Len(t, w.Plan("job").Epochs, maxEpochs)
		assert.Contains(t, w.Plan("job").Problem, "until shards 3 are enabled")
		w.editControl("job", disable())
		w.claim(b, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(3), coordtest.Fire(1, 2).Watermark())
		})
		w.Settle()
		pass(n, shardset.Range(0, 4))
		w.View.Now = coordtest.At(n + 2)
		w.Settle()
		pass(n+2, shardset.Range(0, 4))
		assert.Empty(t, w.Plan("job").Problem)
		assert.Equal(t, n-1, w.Plan("job").Last().Job().Revision)
	})
	t.Run("keep a trigger, which keeps only its own epoch", func(t *testing.T) {
		w, a := setUp(t)
		w.View.SlowTick = true
		w.editControl("job", func(c *record.Control) {
			c.Disabled = shardset.Of(3)
			c.Triggers = []record.Trigger{{Number: 1, At: coordtest.Start}}
		})
		w.Settle()
		for i := range 3 * maxEpochs {
			w.View.Now = coordtest.At(10 + i)
			w.Define("job", 4, 2+i, "")
			w.Settle()
			w.claim(a, "job", func(c *record.Claims) { // as they come, or passed over
				c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 4), record.Watermark{Epoch: w.Plan("job").Last().Number, Fire: coordtest.At(10 + i)})
				c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 3), record.Watermark{Trigger: 1, TriggerAttempt: 1})
			})
			w.Settle()
		}
		p := w.Plan("job")
		require.Len(t, p.Triggers, 1)
		assert.Empty(t, p.Problem)
		assert.LessOrEqual(t, len(p.Epochs), 3)
		assert.Equal(t, 1, p.Epochs[0].Number, "by which the trigger runs")
		w.claim(a, "job", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(3), record.Watermark{Trigger: 1, TriggerAttempt: 1})
		})
		w.View.Now = coordtest.At(10 + 3*maxEpochs)
		w.Settle()
		assert.Empty(t, w.Plan("job").Triggers)
		assert.Len(t, w.Plan("job").Epochs, 1)
	})
}

func TestPlan_DisabledInstances(t *testing.T) {
	for name, strategy := range map[string]string{"the sticky strategy": "", "a strategy of its own": `,"strategy":"average"`} {
		t.Run("own nothing, by "+name, func(t *testing.T) {
			w := NewWorld(t)
			a, b, c := w.Join("a", "job"), w.Join("b", "job"), w.Join("c", "job")
			w.Define("job", 6, 1, strategy)
			w.Settle()
			require.Len(t, w.owners("job"), 3)
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"c"} })
			w.round()
			assert.Equal(t, w.Plan("job").Owners[c], w.Plan("job").Frozen.Intersect(w.Plan("job").Owners[c]), "frozen before they move")
			w.Settle()
			assert.Equal(t, 3, w.Plan("job").Owners[a].Len())
			assert.Equal(t, 3, w.Plan("job").Owners[b].Len())
			assert.Empty(t, w.Plan("job").Problem)
			w.editControl("job", func(c *record.Control) { c.Instances = nil })
			w.Settle()
			assert.Len(t, w.owners("job"), 3)
		})
	}
	setUp := func(t *testing.T) (w *world, a, b string) {
		w = NewWorld(t)
		a, b = w.Join("a", "job", "other"), w.Join("b", "job", "other")
		w.editMember(a, func(m *record.Member) { m.Host = "x" })
		w.editMember(b, func(m *record.Member) { m.Host = "y" })
		w.Define("job", 4, 1, "")
		w.Define("other", 4, 1, `,"strategy":"odevity"`)
		w.Settle()
		return w, a, b
	}
	t.Run("of one job own shards of others", func(t *testing.T) {
		w, a, b := setUp(t)
		w.editControl("job", func(c *record.Control) { c.Instances = []string{"a"} })
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Contains(t, w.owners("other"), a)
	})
	t.Run("of all jobs own nothing of any, whatever the strategy, and stay members", func(t *testing.T) {
		w, a, b := setUp(t)
		w.View.GroupExclusion.Instances = []string{"a"}
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("other"))
		assert.Contains(t, w.View.Members, a)
	})
	t.Run("are also all instances of a disabled host", func(t *testing.T) {
		w, a, b := setUp(t)
		w.View.GroupExclusion.Hosts = []string{"y"}
		w.editControl("other", func(c *record.Control) { c.Hosts = []string{"x"} })
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.Empty(t, w.owners("other"), "one is disabled for the group, one for the job")
		assert.Equal(t, allDisabled, w.Plan("other").Problem)
		w.View.GroupExclusion.Hosts = nil
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("other"))
		assert.Empty(t, w.Plan("other").Problem)
	})
	t.Run("keep running shards, frozen, until their runs have ended", func(t *testing.T) {
		w, a, b := setUp(t)
		w.startRuns(a, "job", shardset.Of(0), coordtest.Fire(1, 1))
		w.View.GroupExclusion.Instances = []string{"a"}
		w.round()
		d := w.round()
		assert.Equal(t, map[string]string{a: "0", b: "1-3"}, w.owners("job"))
		assert.Equal(t, "0", w.Plan("job").Frozen.String())
		assert.Equal(t, []string{a}, d.Follow)
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), w.Plan("job").Watermarks.Of(0))
	})
	t.Run("leave the shards unowned if no other is live, and the plan names the problem", func(t *testing.T) {
		w, a, b := setUp(t)
		w.View.GroupExclusion.Instances = []string{"a", "b"}
		w.Settle()
		assert.Empty(t, w.owners("job"))
		assert.Equal(t, allDisabled, w.Plan("job").Problem)
		assert.Equal(t, allDisabled, w.Plan("other").Problem)
		require.Empty(t, w.decide().Changes)
		w.View.GroupExclusion.Instances = []string{"b"}
		require.Len(t, w.round().Changes, 2, "no claims have to be read first")
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.Empty(t, w.Plan("job").Problem)
		w.View.GroupExclusion.Instances = nil
		w.Settle()
		assert.Contains(t, w.owners("job"), b)
	})
	t.Run("that alone offer a new job have its plan created without owners", func(t *testing.T) {
		w, _, _ := setUp(t)
		w.View.GroupExclusion.Instances = []string{"a", "b"}
		w.Settle()
		c := w.Join("c", "new")
		w.View.GroupExclusion.Instances = append(w.View.GroupExclusion.Instances, "c")
		w.Define("new", 2, 1, "")
		w.Settle()
		assert.Empty(t, w.owners("new"))
		assert.Equal(t, allDisabled, w.Plan("new").Problem)
		w.View.GroupExclusion.Instances = nil
		w.Settle()
		assert.Equal(t, map[string]string{c: "0-1"}, w.owners("new"))
	})
	t.Run("that are not members are no problem of an unoffered job", func(t *testing.T) {
		w, a, b := setUp(t)
		w.View.GroupExclusion.Instances = []string{"nobody"}
		w.expire(a)
		w.expire(b)
		w.Settle()
		assert.Equal(t, UnofferedProblem, w.Plan("job").Problem)
	})
	t.Run("by name are disabled in their next incarnation, too", func(t *testing.T) {
		w, a, b := setUp(t)
		w.View.GroupExclusion.Instances = []string{"a"}
		w.Settle()
		w.expire(a)
		w.Settle()
		w.View.Live["again"] = true
		w.View.Members["a.again"] = MemberRecord{Rev: w.nextRev(), Member: record.Member{Name: "a", Session: "again", Jobs: []string{"job", "other"}}}
		w.Settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
}

func TestPlan_DisabledInstancesThatAreAwaited(t *testing.T) {
	for _, strategy := range []string{"", `,"strategy":"average"`} {
		setUp := func(t *testing.T) (w *world, a, b, c string) {
			w = NewWorld(t)
			a, b, c = w.Join("a", "job"), w.Join("b", "job"), w.Join("c", "job")
			w.editMember(b, func(m *record.Member) { m.Host = "x" })
			w.Define("job", 6, 1, strategy)
			w.Settle()
			w.startRuns(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			w.expire(b)
			w.setAbsent(b, time.Second)
			w.Settle()
			require.Contains(t, w.owners("job"), b)
			return w, a, b, c
		}
		goes := func(t *testing.T, w *world, b string) {
			lost := w.Plan("job").Owners[b]
			w.round()
			assert.Equal(t, 6, w.Plan("job").Owners["a.a"].Len()+w.Plan("job").Owners["c.c"].Len(), "with the same change")
			w.Settle()
			assert.NotContains(t, w.owners("job"), b)
			assert.Len(t, w.owners("job"), 2)
			assert.Equal(t, record.Runs{}.With(lost, coordtest.Fire(1, 2)), w.Plan("job").Reruns)
			assert.NotContains(t, w.View.Members, b, "it is reaped")
		}
		t.Run("are no longer awaited, for all jobs"+strategy, func(t *testing.T) {
			w, _, b, _ := setUp(t)
			w.View.GroupExclusion.Instances = []string{"b"}
			goes(t, w, b)
			assert.Zero(t, w.decide().GraceEnds)
		})
		t.Run("are no longer awaited, for one job"+strategy, func(t *testing.T) {
			w, _, b, _ := setUp(t)
			w.editControl("job", func(c *record.Control) { c.Hosts = []string{"x"} })
			goes(t, w, b)
		})
		t.Run("keep their shards of other jobs"+strategy, func(t *testing.T) {
			w := NewWorld(t)
			a, b := w.Join("a", "job", "other"), w.Join("b", "job", "other")
			w.Define("job", 2, 1, strategy)
			w.Define("other", 2, 1, strategy)
			w.Settle()
			before := w.owners("other")
			require.Len(t, before, 2)
			w.expire(b)
			w.setAbsent(b, time.Second)
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"b"} })
			w.Settle()
			assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
			assert.Equal(t, before, w.owners("other"))
		})
		t.Run("lose their shards as usual when they drain"+strategy, func(t *testing.T) {
			w, a, b, c := setUp(t)
			w.editMember(c, func(m *record.Member) { m.Draining = true })
			w.setAbsent(c, time.Second)
			before := w.owners("job")
			w.Settle()
			require.Equal(t, before, w.owners("job"))
			w.editControl("job", func(r *record.Control) { r.Instances = []string{"c"} })
			w.Settle()
			assert.NotContains(t, w.owners("job"), c)
			assert.Equal(t, before[b], w.owners("job")[b])
			w.setAbsent(b, time.Minute)
			w.Settle()
			assert.Equal(t, map[string]string{a: "0-5"}, w.owners("job"))
		})
		t.Run("keep nothing for a returning instance of their name"+strategy, func(t *testing.T) {
			w, _, b, _ := setUp(t)
			w.View.GroupExclusion.Instances = []string{"b"}
			back := w.joinAs("b", "later", "job")
			goes(t, w, b)
			assert.NotContains(t, w.owners("job"), back)
		})
	}
	t.Run("leave a job that only disabled instances offer", func(t *testing.T) {
		for _, strategy := range []string{"", `,"strategy":"average"`} {
			w := NewWorld(t)
			a, b := w.Join("a", "job"), w.Join("b", "job")
			w.Define("job", 2, 1, strategy)
			w.Settle()
			w.expire(b)
			w.setAbsent(b, time.Second)
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"a"} })
			before := w.owners("job")[b]
			w.Settle()
			assert.Equal(t, map[string]string{b: before}, w.owners("job"))
			assert.Equal(t, allDisabled, w.Plan("job").Problem)
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"a", "b"} })
			w.Settle()
			assert.Empty(t, w.owners("job"))
			w.editControl("job", func(c *record.Control) { c.Instances = []string{"b"} })
			w.Settle()
			assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		}
	})
}
