package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// setAbsent makes a member with a restart grace of a minute absent for a time.
func (w *world) setAbsent(inc string, lasting time.Duration) {
	w.editMember(inc, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
	if w.View.Absences == nil {
		w.View.Absences = map[string]time.Duration{}
	}
	w.View.Absences[inc] = lasting
}

func TestPlan_RestartGrace(t *testing.T) {
	const strange = `,"strategy":"average"`
	setUp := func(t *testing.T, more string) (w *world, a, b, c string) {
		w = NewWorld(t)
		a, b, c = w.Join("a", "job"), w.Join("b", "job"), w.Join("c", "job")
		w.Define("job", 6, 0, more)
		w.Settle()
		w.expire(b)
		w.setAbsent(b, time.Second)
		return w, a, b, c
	}
	for _, more := range []string{"", strange} {
		t.Run("leaves the shards of an expired member with it, and their runs"+more, func(t *testing.T) {
			w, _, b, _ := setUp(t, more)
			w.startRuns(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			before := w.owners("job")
			w.Settle()
			assert.Equal(t, before, w.owners("job"))
			assert.NotEmpty(t, w.claims[b])
		})
		t.Run("assigns them and their runs to a returning instance of its name, and moves no others"+more, func(t *testing.T) {
			w, a, b, c := setUp(t, more)
			had := w.owners("job")
			w.startRuns(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			back := w.joinAs("b", "later", "job")
			d := w.round()
			require.Len(t, d.Changes, 1)
			assert.Equal(t, map[string]string{a: had[a], back: had[b], c: had[c]}, w.owners("job"))
			assert.Equal(t, record.Runs(nil).With(w.Plan("job").Owners[back], coordtest.Fire(1, 2)), w.Plan("job").Reruns)
			w.Settle()
			assert.Equal(t, map[string]string{a: had[a], back: had[b], c: had[c]}, w.owners("job"))
		})
		t.Run("after its end, shards move as usual"+more, func(t *testing.T) {
			w, _, b, _ := setUp(t, more)
			w.startRuns(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			lost := w.Plan("job").Owners[b]
			w.setAbsent(b, time.Minute)
			w.Settle()
			assert.NotContains(t, w.owners("job"), b)
			assert.Len(t, w.owners("job"), 2)
			assert.Equal(t, lost, w.Plan("job").Reruns.Shards())
			assert.NotContains(t, w.View.Members, b, "it is reaped")
		})
		t.Run("of a draining member keeps its idle shards"+more, func(t *testing.T) {
			w, a, b, _ := setUp(t, more)
			before := w.owners("job")
			w.editMember(a, func(m *record.Member) { m.Draining = true })
			w.setAbsent(a, time.Second)
			w.Settle()
			assert.Equal(t, before, w.owners("job"))
			w.setAbsent(a, time.Minute)
			w.Settle()
			assert.NotContains(t, w.owners("job"), a, "until the grace ends")
			assert.Contains(t, w.owners("job"), b)
		})
	}
	t.Run("assigns each its own shards when several return at once", func(t *testing.T) {
		w := NewWorld(t)
		w.Define("job", 6, 0, "")
		for _, name := range []string{"c", "b", "a"} {
			w.Join(name, "job")
			w.Settle()
		}
		had := w.owners("job")
		require.Equal(t, "0-1", had["c.c"], "not the shards that they would be assigned")
		later := map[string]string{}
		for inc, shards := range had {
			w.expire(inc)
			w.setAbsent(inc, time.Second)
			later[w.joinAs(w.View.Members[inc].Name, registry.SessionID("later"+inc[:1]), "job")] = shards
		}
		w.Settle()
		assert.Equal(t, later, w.owners("job"))
	})
	t.Run("leaves an absent member its shards, and no more, whatever a strategy returns", func(t *testing.T) {
		w, a, b, c := setUp(t, strange)
		w.View.Live["b"] = true
		w.editMember(b, func(m *record.Member) { m.Draining = true })
		require.Equal(t, map[string]string{a: "4-5", b: "2-3", c: "0-1"}, w.owners("job"))
		w.Join("aa", "job") // so that average wants 0,4 for c, 1,5 for b, 2 for aa and 3 for a
		w.Settle()
		assert.Equal(t, map[string]string{a: "5", b: "2-3", c: "0-1,4"}, w.owners("job"))
	})
	t.Run("assigns unowned shards to live members", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		d := w.Join("d", "job")
		w.expire(c)
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3", d: "4-5"}, w.owners("job"))
		w.View.Members[a] = MemberRecord{Rev: w.nextRev(), Member: record.Member{Name: "a", Session: "a", Jobs: []string{"job", "new"}}}
		w.Define("new", 2, 0, "")
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("new"))
	})
	t.Run("balances live members when another joins", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		d := w.Join("d", "job")
		w.Settle()
		assert.Equal(t, "2-3", w.owners("job")[b])
		shares := []int{}
		for _, inc := range []string{a, c, d} {
			shares = append(shares, w.Plan("job").Owners[inc].Len())
		}
		assert.ElementsMatch(t, []int{1, 1, 2}, shares)
	})
	t.Run("respects blocked shards while others wait", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		w.editMember(a, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(4)} })
		w.expire(c)
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1,5", b: "2-3"}, w.owners("job"), "a member blocked for shard 4 is not assigned it")
	})
	t.Run("ends with the return of an instance that no longer offers the job", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		w.joinAs("b", "later", "other")
		w.Settle()
		assert.NotContains(t, w.owners("job"), b)
		assert.Len(t, w.owners("job"), 2)
	})
	t.Run("lasts if the returning instance drains at once", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		again := w.joinAs("b", "later", "job")
		w.editMember(again, func(m *record.Member) { m.Draining = true })
		before := w.owners("job")
		w.Settle()
		assert.Equal(t, before, w.owners("job"))
		assert.Contains(t, before, b)
	})
	t.Run("returns when the first restart grace ends", func(t *testing.T) {
		w, a, _, _ := setUp(t, "")
		w.expire(a)
		w.setAbsent(a, 50*time.Second)
		assert.Equal(t, 10*time.Second, w.decide().GraceEnds)
	})
	t.Run("of a record with years is an hour", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		w.editMember(b, func(m *record.Member) { m.RestartGrace = record.Duration(1e6 * time.Hour) })
		w.View.Absences[b] = time.Hour
		w.Settle()
		assert.NotContains(t, w.owners("job"), b)
	})
}
