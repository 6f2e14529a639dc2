package coordinator

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry/memory"
)

// labelled adds a live member with a label zone.
func (w *world) labelled(name, zone string, jobs ...string) string {
	inc := w.member(name, jobs...)
	w.change(inc, func(m *record.Member) { m.Labels = map[string]string{"zone": zone, "disk": "ssd"} })
	return inc
}

// renew carries a new definition through: past its beginning and what is owed before it.
func (w *world) renew(job string, shards, revision int, more string) {
	w.t.Helper()
	w.define(job, shards, revision, more)
	w.settle()
	require.Equal(w.t, revision, w.plan(job).Last().Job().Revision)
}

func TestPlan_RunOn(t *testing.T) {
	const east = `,"run_on":{"zone":"east"}`
	for name, strategy := range map[string]string{"sticky": "", "average": `,"strategy":"average"`, "single": `,"strategy":"single"`} {
		t.Run("gives shards only to those who have the labels, by "+name, func(t *testing.T) {
			w := newWorld(t)
			w.labelled("a", "west", "job")
			b, c := w.labelled("b", "east", "job"), w.labelled("c", "east", "job")
			w.member("d", "job")
			w.define("job", 6, 1, east+strategy)
			w.settle()
			owned := shardset.Set{}
			for inc, set := range w.plan("job").Owners {
				assert.Contains(t, []string{b, c}, inc)
				owned = owned.Union(set)
			}
			assert.Equal(t, "0-5", owned.String())
			assert.Empty(t, w.plan("job").Problem)
		})
	}
	t.Run("wants all pairs", func(t *testing.T) {
		w := newWorld(t)
		w.labelled("a", "east", "job")
		b := w.labelled("b", "east", "job")
		w.change(b, func(m *record.Member) { m.Labels = map[string]string{"zone": "east", "disk": "hdd"} })
		w.define("job", 4, 1, `,"run_on":{"zone":"east","disk":"hdd"}`)
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("asks a strategy about those only who have the labels", func(t *testing.T) {
		var asked []string
		w := newWorld(t)
		w.v.strategies["asks about the east"] = func(in Input) (Assignment, error) {
			for _, m := range in.Members {
				asked = append(asked, m.Name)
			}
			return average(in)
		}
		w.labelled("a", "west", "job")
		w.labelled("b", "east", "job")
		gone, gone2 := w.labelled("c", "west", "job"), w.labelled("d", "east", "job")
		w.kill(gone)
		w.kill(gone2)
		w.absent(gone, time.Second)
		w.absent(gone2, time.Second)
		w.define("job", 4, 1, east+`,"strategy":"asks about the east"`)
		w.decide()
		assert.Equal(t, []string{"b", "d"}, asked[:2], "d as if it were there: it is awaited")
	})
	t.Run("of a new definition hands over what is idle at once, and what runs when it has ended", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.labelled("a", "west", "job"), w.labelled("b", "east", "job")
		w.define("job", 4, 1, "")
		w.settle()
		require.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		w.running(a, "job", shardset.Of(0), fire(1, 1))
		w.renew("job", 4, 2, east)
		assert.Equal(t, map[string]string{a: "0", b: "1-3"}, w.owners("job"))
		assert.Equal(t, "0", w.plan("job").Frozen.String())
		assert.Equal(t, []string{a}, w.round().pending)
		w.claim(a, "job", func(c *record.Claims) { c.Running = nil })
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("of a new definition holds at once, for what is owed under the one before as well", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.labelled("a", "west", "job"), w.labelled("b", "east", "job")
		w.define("job", 4, 1, "")
		w.settle()
		require.Contains(t, w.owners("job"), a)
		w.define("job", 4, 2, east)
		w.round()
		assert.Equal(t, w.plan("job").Owners[a], w.plan("job").Frozen)
		require.Equal(t, 1, w.plan("job").Last().Job().Revision, "its own fires come later")
		w.round()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		assert.Len(t, w.plan("job").Epochs, 2)
	})
	t.Run("of an older definition does not come back", func(t *testing.T) {
		w := newWorld(t)
		w.labelled("a", "west", "job")
		b := w.labelled("b", "east", "job")
		w.define("job", 4, 2, east)
		w.settle()
		w.define("job", 4, 1, "")
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
		delete(w.v.jobs, "job")
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"), "nor does it go with its record")
	})
	t.Run("that nobody has leaves the shards to nobody, and the plan says which labels are wanted", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.labelled("a", "west", "job", "other"), w.labelled("b", "west", "job", "other")
		w.define("job", 4, 1, `,"run_on":{"zone":"east","rack":""}`)
		w.define("other", 4, 1, "")
		w.settle()
		require.Empty(t, w.owners("job"), "but there is a plan: fires count")
		assert.Equal(t, "no instance that is there and offers the job has the labels rack=, zone=east", w.plan("job").Problem)
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("other"))
		w.renew("job", 4, 2, east)
		assert.Equal(t, "no instance that is there and offers the job has the labels zone=east", w.plan("job").Problem)
		c := w.labelled("c", "east", "job")
		w.settle()
		assert.Equal(t, map[string]string{c: "0-3"}, w.owners("job"))
		assert.Empty(t, w.plan("job").Problem)
		w.kill(c)
		w.settle()
		assert.Empty(t, w.owners("job"))
		assert.NotEmpty(t, w.plan("job").Problem)
	})
	t.Run("says of those who have the labels and are disabled that they are", func(t *testing.T) {
		w := newWorld(t)
		w.labelled("a", "west", "job", "other")
		w.labelled("b", "east", "job", "other")
		w.define("job", 4, 1, east)
		w.define("other", 4, 1, east+`,"strategy":"average"`)
		w.settle()
		w.intend("job", func(c *record.Control) { c.Instances = []string{"b"} })
		w.settle()
		const want = "every instance that is there and offers the job is disabled or lacks the labels zone=east"
		assert.Equal(t, want, w.plan("job").Problem)
		assert.NotEmpty(t, w.owners("other"))
		w.v.outside.Instances = []string{"b"}
		w.settle()
		assert.Equal(t, want, w.plan("other").Problem)
		assert.Empty(t, w.owners("other"))
	})
	t.Run("waits for the return of nobody who lacks the labels", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.labelled("a", "west", "job"), w.labelled("b", "east", "job")
		w.define("job", 4, 1, "")
		w.settle()
		w.kill(a)
		w.absent(a, time.Second)
		w.settle()
		require.Equal(t, map[string]string{a: "0-1", b: "2-3"}, w.owners("job"))
		w.renew("job", 4, 2, east)
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("gives one that is back with other labels nothing of what it had", func(t *testing.T) {
		w := newWorld(t)
		a, b := w.labelled("a", "east", "job"), w.labelled("b", "east", "job")
		w.define("job", 4, 1, east)
		w.settle()
		w.kill(a)
		w.absent(a, time.Second)
		w.settle()
		require.Contains(t, w.owners("job"), a)
		w.enter("a", "later", "job")
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("holds while the job is paused", func(t *testing.T) {
		w := newWorld(t)
		w.labelled("a", "west", "job")
		b := w.labelled("b", "east", "job")
		w.define("job", 4, 1, "")
		w.settle()
		w.intend("job", func(c *record.Control) { c.Paused = true })
		w.define("job", 4, 2, east)
		w.settle()
		assert.Equal(t, map[string]string{b: "0-3"}, w.owners("job"))
	})
	t.Run("of a definition that waits behind too many holds, so that somebody may serve what those owe", func(t *testing.T) {
		w := newWorld(t)
		w.v.tidy = true
		a := w.labelled("a", "west", "job")
		w.define("job", 4, 0, east)
		w.settle()
		for n := range maxEpochs + 3 {
			w.v.now = at(10 + n)
			w.define("job", 4, 1+n, east)
			w.settle()
		}
		require.Len(t, w.plan("job").Epochs, maxEpochs)
		require.Empty(t, w.owners("job"))
		w.define("job", 4, 100, `,"run_on":{"zone":"west"}`)
		w.settle()
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
		for n := range maxEpochs + 2 {
			w.v.now = at(30 + n)
			for _, e := range w.plan("job").Epochs {
				w.claim(a, "job", func(c *record.Claims) {
					c.Marks = c.Marks.Raise(shardset.Range(0, 4), record.Mark{Gen: e.Gen, Fire: max(e.From, w.v.now)})
				})
			}
			w.settle()
		}
		assert.Equal(t, 100, w.plan("job").Last().Job().Revision)
		assert.Empty(t, w.plan("job").Problem)
		assert.Equal(t, map[string]string{a: "0-3"}, w.owners("job"))
	})
	t.Run("comes to rest, whatever is wanted and whoever is there", func(t *testing.T) {
		w := newWorld(t)
		w.labelled("a", "west", "one", "two", "three")
		w.labelled("b", "east", "one", "two")
		w.labelled("c", "north", "one", "three")
		w.define("one", 5, 1, "")
		w.define("two", 5, 1, east)
		w.define("three", 5, 1, `,"run_on":{"zone":"north"}`)
		w.settle()
		before := map[string]map[string]string{}
		for _, job := range []string{"one", "two", "three"} {
			before[job] = maps.Clone(w.owners(job))
		}
		require.Empty(t, w.decide().changes)
		for job, owners := range before {
			assert.Equal(t, owners, w.owners(job))
		}
	})
}

func TestNewMember_Labels(t *testing.T) {
	_, err := NewMember(memory.New().Client("a"), MemberOptions{Namespace: "test", Labels: map[string]string{"": "x", "zone": "\n"}})
	assert.ErrorContains(t, err, "labels: an empty key")
	assert.ErrorContains(t, err, `the value of "zone" has a control character`)
}

func TestJoin_RunOn(t *testing.T) {
	t.Run("refuses labels that cannot be", func(t *testing.T) {
		err := Join(t.Context(), nil, Config{Namespace: "test", Shards: 1, RunOn: map[string]string{"": ""}, Own: func(context.Context, Owned) error { return nil }})
		assert.ErrorContains(t, err, "join: RunOn: an empty key")
	})
	holding(t, "has those own shards who have the labels, by the highest revision", func(t *testing.T, h *holders) {
		in := func(name, zone string, revision int, wanted string) func() error {
			return h.joinAs(Config{
				Instance: name, Shards: 4, Revision: revision, Labels: map[string]string{"zone": zone}, RunOn: map[string]string{"zone": wanted},
			})
		}
		leaveA := in("a", "east", 1, "east")
		leaveB := in("b", "west", 1, "east")
		assert.Equal(t, map[string]string{"a": "0-3"}, h.now())
		leaveC := in("c", "west", 2, "west")
		time.Sleep(time.Minute)
		var owned shardset.Set
		for name, text := range h.now() { // who gets which depends on which call returned first
			var has shardset.Set
			require.NoError(t, has.UnmarshalText([]byte(text)))
			assert.Contains(t, []string{"b", "c"}, name)
			assert.Equal(t, 2, has.Len(), name)
			owned = owned.Union(has)
		}
		assert.Equal(t, "0-3", owned.String())
		for _, err := range h.why("a") {
			assert.ErrorIs(t, err, ErrMoving)
		}
		assert.NoError(t, leaveB())
		assert.NoError(t, leaveC())
		time.Sleep(time.Second)
		assert.Empty(t, h.now(), "nobody is there who may")
		assert.NoError(t, leaveA())
	})
}
