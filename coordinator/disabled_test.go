package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_DisabledShards(t *testing.T) {
	disable := func(shards ...int) func(*record.Control) {
		return func(c *record.Control) { c.Disabled = shardset.Of(shards...) }
	}
	setUp := func(t *testing.T) (*world, string) {
		w := newWorld(t)
		a := w.member("a", "job")
		w.define("job", 4, 1, "")
		w.settle()
		return w, a
	}
	t.Run("go into the plan, and out of it, and stay with their owner", func(t *testing.T) {
		w, a := setUp(t)
		w.intend("job", disable(1, 3))
		require.Len(t, w.round().changes, 1)
		assert.Equal(t, "1,3", w.plan("job").Disabled.String())
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		require.Empty(t, w.decide().changes)
		w.intend("job", disable(3))
		w.settle()
		assert.Equal(t, "3", w.plan("job").Disabled.String())
		w.intend("job", disable())
		w.settle()
		assert.True(t, w.plan("job").Disabled.IsZero())
		assert.Len(t, w.plan("job").Epochs, 1)
	})
	t.Run("of a new job are in its first plan", func(t *testing.T) {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 4, 1, "")
		w.intend("job", disable(2))
		w.round()
		assert.Equal(t, "2", w.plan("job").Disabled.String())
	})
	t.Run("change while the job is paused, too", func(t *testing.T) {
		w, _ := setUp(t)
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.settle()
		w.intend("job", disable(0))
		w.settle()
		assert.Equal(t, "0", w.plan("job").Disabled.String())
		assert.True(t, w.plan("job").Paused)
	})
	t.Run("stay so when nobody's word for it can be found any more", func(t *testing.T) {
		w, _ := setUp(t)
		w.intend("job", disable(0))
		w.settle()
		delete(w.v.control, "job")
		w.settle()
		assert.Equal(t, "0", w.plan("job").Disabled.String())
	})
	t.Run("beyond the total are so again when it grows", func(t *testing.T) {
		w, a := setUp(t)
		w.intend("job", disable(3))
		w.settle()
		w.define("job", 2, 2, "")
		w.settle()
		w.v.now, w.v.tidy = at(1), true
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Range(0, 4), record.Mark{Gen: 1, Fire: w.plan("job").Epochs[0].Until})
		})
		w.settle()
		require.Len(t, w.plan("job").Epochs, 1)
		require.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		w.define("job", 4, 3, "")
		w.settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.Equal(t, "3", w.plan("job").Disabled.String())
	})
	t.Run("move and fail over as others do, with what was running", func(t *testing.T) {
		w, a := setUp(t)
		w.running(a, "job", shardset.Of(1), fire(1, 1))
		w.intend("job", disable(0, 1))
		w.settle()
		w.kill(a)
		b := w.member("b", "job")
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, record.Runs{}.With(shardset.Of(1), fire(1, 2)), w.plan("job").Reruns)
		w.v.tidy = true
		w.settle()
		assert.NotEmpty(t, w.plan("job").Reruns, "it waits")
	})
	t.Run("hold up new definitions while a re-run waits and the fires behind it, and the plan says so", func(t *testing.T) {
		w, a := setUp(t)
		w.v.tidy = true
		w.running(a, "job", shardset.Of(3), fire(1, 1))
		w.intend("job", disable(3))
		w.kill(a)
		b := w.member("b", "job")
		w.settle()
		pass := func(n int, shards shardset.Set) {
			w.claim(b, "job", func(c *record.Claims) {
				c.Marks = c.Marks.Raise(shards, record.Mark{Gen: w.plan("job").Last().Gen, Fire: at(n)})
			})
			w.settle()
		}
		n := 10
		for ; n < 10+2*maxEpochs; n++ {
			w.v.now = at(n)
			w.define("job", 4, n, "")
			w.settle()
			pass(n, shardset.Range(0, 3))
		}
		require.Len(t, w.plan("job").Epochs, maxEpochs)
		assert.Contains(t, w.plan("job").Problem, "until shards 3 are enabled")
		w.intend("job", disable())
		w.claim(b, "job", func(c *record.Claims) { c.Marks = c.Marks.Raise(shardset.Of(3), fire(1, 2).Mark()) })
		w.settle()
		pass(n, shardset.Range(0, 4))
		w.v.now = at(n + 2)
		w.settle()
		pass(n+2, shardset.Range(0, 4))
		assert.Empty(t, w.plan("job").Problem)
		assert.Equal(t, n-1, w.plan("job").Last().Job().Revision)
	})
	t.Run("keep a trigger, which holds up no definition but its own", func(t *testing.T) {
		w, a := setUp(t)
		w.v.tidy = true
		w.intend("job", func(c *record.Control) {
			c.Disabled = shardset.Of(3)
			c.Triggers = []record.Trigger{{Number: 1, At: start}}
		})
		w.settle()
		for i := range 3 * maxEpochs {
			w.v.now = at(10 + i)
			w.define("job", 4, 2+i, "")
			w.settle()
			w.claim(a, "job", func(c *record.Claims) { // as they come, or passed over
				c.Marks = c.Marks.Raise(shardset.Range(0, 4), record.Mark{Gen: w.plan("job").Last().Gen, Fire: at(10 + i)})
				c.Marks = c.Marks.Raise(shardset.Range(0, 3), record.Mark{Trigger: 1, TriggerAttempt: 1})
			})
			w.settle()
		}
		p := w.plan("job")
		require.Len(t, p.Triggers, 1)
		assert.Empty(t, p.Problem)
		assert.LessOrEqual(t, len(p.Epochs), 3)
		assert.Equal(t, 1, p.Epochs[0].Gen, "by which it runs")
		w.claim(a, "job", func(c *record.Claims) {
			c.Marks = c.Marks.Raise(shardset.Of(3), record.Mark{Trigger: 1, TriggerAttempt: 1})
		})
		w.v.now = at(10 + 3*maxEpochs)
		w.settle()
		assert.Empty(t, w.plan("job").Triggers)
		assert.Len(t, w.plan("job").Epochs, 1)
	})
}

func TestPlan_DisabledInstances(t *testing.T) {
	for name, strategy := range map[string]string{"the sticky strategy": "", "a strategy of its own": `,"strategy":"average"`} {
		t.Run("own nothing, by "+name, func(t *testing.T) {
			w := newWorld(t)
			a, b, c := w.member("a", "job"), w.member("b", "job"), w.member("c", "job")
			w.define("job", 6, 1, strategy)
			w.settle()
			require.Len(t, w.owners("job"), 3)
			w.intend("job", func(c *record.Control) { c.Instances = []string{"c"} })
			w.round()
			assert.Equal(t, w.plan("job").Owners[c], w.plan("job").Frozen.Intersect(w.plan("job").Owners[c]), "frozen before they move")
			w.settle()
			assert.Equal(t, 3, w.plan("job").Owners[a].Len())
			assert.Equal(t, 3, w.plan("job").Owners[b].Len())
			assert.Empty(t, w.plan("job").Problem)
			w.intend("job", func(c *record.Control) { c.Instances = nil })
			w.settle()
			assert.Len(t, w.owners("job"), 3)
		})
	}
	setUp := func(t *testing.T) (w *world, a, b string) {
		w = newWorld(t)
		a, b = w.member("a", "job", "other"), w.member("b", "job", "other")
		w.change(a, func(m *record.Member) { m.Host = "x" })
		w.change(b, func(m *record.Member) { m.Host = "y" })
		w.define("job", 4, 1, "")
		w.define("other", 4, 1, `,"strategy":"odevity"`)
		w.settle()
		return w, a, b
	}
	t.Run("of one job own shards of others", func(t *testing.T) {
		w, a, b := setUp(t)
		w.intend("job", func(c *record.Control) { c.Instances = []string{"a"} })
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Contains(t, w.owners("other"), a)
	})
	t.Run("of all jobs own nothing of any, whatever the strategy, and stay members", func(t *testing.T) {
		w, a, b := setUp(t)
		w.v.outside.Instances = []string{"a"}
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("other"))
		assert.Contains(t, w.v.members, a)
	})
	t.Run("are those of a host", func(t *testing.T) {
		w, a, b := setUp(t)
		w.v.outside.Hosts = []string{"y"}
		w.intend("other", func(c *record.Control) { c.Hosts = []string{"x"} })
		w.settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.Empty(t, w.owners("other"), "one by the group's intent, one by the job's")
		assert.Equal(t, allDisabled, w.plan("other").Problem)
		w.v.outside.Hosts = nil
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("other"))
		assert.Empty(t, w.plan("other").Problem)
	})
	t.Run("keep what runs, frozen, until it has ended", func(t *testing.T) {
		w, a, b := setUp(t)
		w.running(a, "job", shardset.Of(0), fire(1, 1))
		w.v.outside.Instances = []string{"a"}
		w.round()
		d := w.round()
		assert.Equal(t, map[string]string{a: "0", b: "1-3"}, w.owners("job"))
		assert.Equal(t, "0", w.plan("job").Frozen.String())
		assert.Equal(t, []string{a}, d.pending)
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Equal(t, fire(1, 1).Mark(), w.plan("job").Marks.Of(0))
	})
	t.Run("who are all there are leave the shards to nobody, and the plan says why", func(t *testing.T) {
		w, a, b := setUp(t)
		w.v.outside.Instances = []string{"a", "b"}
		w.settle()
		assert.Empty(t, w.owners("job"))
		assert.Equal(t, allDisabled, w.plan("job").Problem)
		assert.Equal(t, allDisabled, w.plan("other").Problem)
		require.Empty(t, w.decide().changes)
		w.v.outside.Instances = []string{"b"}
		require.Len(t, w.round().changes, 2, "nobody has to be looked at first")
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		assert.Empty(t, w.plan("job").Problem)
		w.v.outside.Instances = nil
		w.settle()
		assert.Contains(t, w.owners("job"), b)
	})
	t.Run("that are all who offer a new job make it count from now on, for nobody yet", func(t *testing.T) {
		w, _, _ := setUp(t)
		w.v.outside.Instances = []string{"a", "b"}
		w.settle()
		c := w.member("c", "new")
		w.v.outside.Instances = append(w.v.outside.Instances, "c")
		w.define("new", 2, 1, "")
		w.settle()
		assert.Empty(t, w.owners("new"))
		assert.Equal(t, allDisabled, w.plan("new").Problem)
		w.v.outside.Instances = nil
		w.settle()
		assert.Equal(t, map[string]string{c: "0-1"}, w.owners("new"))
	})
	t.Run("that are not there are no problem of a job that nobody offers", func(t *testing.T) {
		w, a, b := setUp(t)
		w.v.outside.Instances = []string{"nobody"}
		w.kill(a)
		w.kill(b)
		w.settle()
		assert.Equal(t, notOffered, w.plan("job").Problem)
	})
	t.Run("by name are so in their next incarnation", func(t *testing.T) {
		w, a, b := setUp(t)
		w.v.outside.Instances = []string{"a"}
		w.settle()
		w.kill(a)
		w.settle()
		w.v.live["again"] = true
		w.v.members["a.again"] = memberItem{rev: w.rev(), Member: record.Member{Name: "a", Session: "again", Jobs: []string{"job", "other"}}}
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
}

func TestPlan_DisabledInstancesThatAreAwaited(t *testing.T) {
	for _, strategy := range []string{"", `,"strategy":"average"`} {
		setUp := func(t *testing.T) (w *world, a, b, c string) {
			w = newWorld(t)
			a, b, c = w.member("a", "job"), w.member("b", "job"), w.member("c", "job")
			w.change(b, func(m *record.Member) { m.Host = "x" })
			w.define("job", 6, 1, strategy)
			w.settle()
			w.running(b, "job", w.plan("job").Owners[b], fire(1, 1))
			w.kill(b)
			w.absent(b, time.Second)
			w.settle()
			require.Contains(t, w.owners("job"), b)
			return w, a, b, c
		}
		goes := func(t *testing.T, w *world, b string) {
			lost := w.plan("job").Owners[b]
			w.round()
			assert.Equal(t, 6, w.plan("job").Owners["a.a"].Len()+w.plan("job").Owners["c.c"].Len(), "with the same change")
			w.settle()
			assert.NotContains(t, w.owners("job"), b)
			assert.Len(t, w.owners("job"), 2)
			assert.Equal(t, record.Runs{}.With(lost, fire(1, 2)), w.plan("job").Reruns)
			assert.NotContains(t, w.v.members, b, "it is buried")
		}
		t.Run("are waited for no more, for all jobs"+strategy, func(t *testing.T) {
			w, _, b, _ := setUp(t)
			w.v.outside.Instances = []string{"b"}
			goes(t, w, b)
			assert.Zero(t, w.v.patience)
		})
		t.Run("are waited for no more, for one job"+strategy, func(t *testing.T) {
			w, _, b, _ := setUp(t)
			w.intend("job", func(c *record.Control) { c.Hosts = []string{"x"} })
			goes(t, w, b)
		})
		t.Run("keep what they have of other jobs"+strategy, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.member("a", "job", "other"), w.member("b", "job", "other")
			w.define("job", 2, 1, strategy)
			w.define("other", 2, 1, strategy)
			w.settle()
			before := w.owners("other")
			require.Len(t, before, 2)
			w.kill(b)
			w.absent(b, time.Second)
			w.intend("job", func(c *record.Control) { c.Instances = []string{"b"} })
			w.settle()
			assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
			assert.Equal(t, before, w.owners("other"))
		})
		t.Run("go as usual when they drain"+strategy, func(t *testing.T) {
			w, a, b, c := setUp(t)
			w.change(c, func(m *record.Member) { m.Draining = true })
			w.absent(c, time.Second)
			before := w.owners("job")
			w.settle()
			require.Equal(t, before, w.owners("job"))
			w.intend("job", func(r *record.Control) { r.Instances = []string{"c"} })
			w.settle()
			assert.NotContains(t, w.owners("job"), c)
			assert.Equal(t, before[b], w.owners("job")[b])
			w.absent(b, time.Minute)
			w.settle()
			assert.Equal(t, map[string]string{a: "0-5"}, w.owners("job"))
		})
		t.Run("have no heir in one of their name that comes"+strategy, func(t *testing.T) {
			w, _, b, _ := setUp(t)
			w.v.outside.Instances = []string{"b"}
			back := w.enter("b", "later", "job")
			goes(t, w, b)
			assert.NotContains(t, w.owners("job"), back)
		})
	}
	t.Run("leave a job that only they and others who are disabled offer", func(t *testing.T) {
		for _, strategy := range []string{"", `,"strategy":"average"`} {
			w := newWorld(t)
			a, b := w.member("a", "job"), w.member("b", "job")
			w.define("job", 2, 1, strategy)
			w.settle()
			w.kill(b)
			w.absent(b, time.Second)
			w.intend("job", func(c *record.Control) { c.Instances = []string{"a"} })
			before := w.owners("job")[b]
			w.settle()
			assert.Equal(t, map[string]string{b: before}, w.owners("job"))
			assert.Equal(t, allDisabled, w.plan("job").Problem)
			w.intend("job", func(c *record.Control) { c.Instances = []string{"a", "b"} })
			w.settle()
			assert.Empty(t, w.owners("job"))
			w.intend("job", func(c *record.Control) { c.Instances = []string{"b"} })
			w.settle()
			assert.Equal(t, map[string]string{a: "0-1"}, w.owners("job"))
		}
	})
}
