package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// absent has a leader see for so long that a member is away that asks for a minute.
func (w *world) absent(inc string, lasting time.Duration) {
	w.change(inc, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
	if w.V.Absences == nil {
		w.V.Absences = map[string]time.Duration{}
	}
	w.V.Absences[inc] = lasting
}

func TestPlan_RestartGrace(t *testing.T) {
	const strange = `,"strategy":"average"`
	setUp := func(t *testing.T, more string) (w *world, a, b, c string) {
		w = NewWorld(t)
		a, b, c = w.Member("a", "job"), w.Member("b", "job"), w.Member("c", "job")
		w.Define("job", 6, 0, more)
		w.Settle()
		w.kill(b)
		w.absent(b, time.Second)
		return w, a, b, c
	}
	for _, more := range []string{"", strange} {
		t.Run("leaves the shards of an expired member with it, and their runs"+more, func(t *testing.T) {
			w, _, b, _ := setUp(t, more)
			w.running(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			before := w.owners("job")
			w.Settle()
			assert.Equal(t, before, w.owners("job"))
			assert.NotEmpty(t, w.claims[b])
		})
		t.Run("assigns them and their runs to a returning instance of its name, and moves no others"+more, func(t *testing.T) {
			w, a, b, c := setUp(t, more)
			had := w.owners("job")
			w.running(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			back := w.enter("b", "later", "job")
			d := w.round()
			require.Len(t, d.Changes, 1)
			assert.Equal(t, map[string]string{a: had[a], back: had[b], c: had[c]}, w.owners("job"))
			assert.Equal(t, record.Runs(nil).With(w.Plan("job").Owners[back], coordtest.Fire(1, 2)), w.Plan("job").Reruns)
			w.Settle()
			assert.Equal(t, map[string]string{a: had[a], back: had[b], c: had[c]}, w.owners("job"))
		})
		t.Run("after its end, shards move as usual"+more, func(t *testing.T) {
			w, _, b, _ := setUp(t, more)
			w.running(b, "job", w.Plan("job").Owners[b], coordtest.Fire(1, 1))
			lost := w.Plan("job").Owners[b]
			w.absent(b, time.Minute)
			w.Settle()
			assert.NotContains(t, w.owners("job"), b)
			assert.Len(t, w.owners("job"), 2)
			assert.Equal(t, lost, w.Plan("job").Reruns.Shards())
			assert.NotContains(t, w.V.Members, b, "it is reaped")
		})
		t.Run("of a draining member keeps its idle shards"+more, func(t *testing.T) {
			w, a, b, _ := setUp(t, more)
			before := w.owners("job")
			w.change(a, func(m *record.Member) { m.Draining = true })
			w.absent(a, time.Second)
			w.Settle()
			assert.Equal(t, before, w.owners("job"))
			w.absent(a, time.Minute)
			w.Settle()
			assert.NotContains(t, w.owners("job"), a, "until the grace ends")
			assert.Contains(t, w.owners("job"), b)
		})
	}
	t.Run("assigns each its own shards when several return at once", func(t *testing.T) {
		w := NewWorld(t)
		w.Define("job", 6, 0, "")
		for _, name := range []string{"c", "b", "a"} {
			w.Member(name, "job")
			w.Settle()
		}
		had := w.owners("job")
		require.Equal(t, "0-1", had["c.c"], "not the shards that they would be assigned")
		later := map[string]string{}
		for inc, shards := range had {
			w.kill(inc)
			w.absent(inc, time.Second)
			later[w.enter(w.V.Members[inc].Name, registry.SessionID("later"+inc[:1]), "job")] = shards
		}
		w.Settle()
		assert.Equal(t, later, w.owners("job"))
	})
	t.Run("leaves an absent member its shards, and no more, whatever a strategy returns", func(t *testing.T) {
		w, a, b, c := setUp(t, strange)
		w.V.Live["b"] = true
		w.change(b, func(m *record.Member) { m.Draining = true })
		require.Equal(t, map[string]string{a: "4-5", b: "2-3", c: "0-1"}, w.owners("job"))
		w.Member("aa", "job") // so that average wants 0,4 for c, 1,5 for b, 2 for aa and 3 for a
		w.Settle()
		assert.Equal(t, map[string]string{a: "5", b: "2-3", c: "0-1,4"}, w.owners("job"))
	})
	t.Run("assigns unowned shards to live members", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		d := w.Member("d", "job")
		w.kill(c)
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1", b: "2-3", d: "4-5"}, w.owners("job"))
		w.V.Members[a] = MemberRecord{Rev: w.rev(), Member: record.Member{Name: "a", Session: "a", Jobs: []string{"job", "new"}}}
		w.Define("new", 2, 0, "")
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1"}, w.owners("new"))
	})
	t.Run("balances live members when another joins", func(t *testing.T) {
		w, a, b, c := setUp(t, "")
		d := w.Member("d", "job")
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
		w.change(a, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(4)} })
		w.kill(c)
		w.Settle()
		assert.Equal(t, map[string]string{a: "0-1,5", b: "2-3"}, w.owners("job"), "a member blocked for shard 4 is not assigned it")
	})
	t.Run("ends with the return of an instance that no longer offers the job", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		w.enter("b", "later", "other")
		w.Settle()
		assert.NotContains(t, w.owners("job"), b)
		assert.Len(t, w.owners("job"), 2)
	})
	t.Run("lasts if the returning instance drains at once", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		again := w.enter("b", "later", "job")
		w.change(again, func(m *record.Member) { m.Draining = true })
		before := w.owners("job")
		w.Settle()
		assert.Equal(t, before, w.owners("job"))
		assert.Contains(t, before, b)
	})
	t.Run("returns when the first restart grace ends", func(t *testing.T) {
		w, a, _, _ := setUp(t, "")
		w.kill(a)
		w.absent(a, 50*time.Second)
		assert.Equal(t, 10*time.Second, w.decide().GraceEnds)
	})
	t.Run("of a record with years is an hour", func(t *testing.T) {
		w, _, b, _ := setUp(t, "")
		w.change(b, func(m *record.Member) { m.RestartGrace = record.Duration(1e6 * time.Hour) })
		w.V.Absences[b] = time.Hour
		w.Settle()
		assert.NotContains(t, w.owners("job"), b)
	})
}
