package leader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestLeader_AppliesWaiting(t *testing.T) {
	entry := func(w *viewFixture, m record.Member) registry.Entry {
		value, err := record.Encode(m)
		require.NoError(t, err)
		return registry.Entry{Key: w.l.Self.Keys.Member("a.A"), Value: value}
	}
	waiting := map[string]record.Waiting{"job": {Shards: shardset.Of(1), Since: 1}}
	for name, c := range map[string]struct {
		next record.Member
		plan bool
	}{
		"plans nothing for waiting runs":                {record.Member{Name: "a", Jobs: []string{"job"}, Waiting: waiting, Clock: 9}, false},
		"plans for other changes of the same record":    {record.Member{Name: "a", Jobs: []string{"job"}, Waiting: waiting, Draining: true}, true},
		"plans for an answer to a clock reading":        {record.Member{Name: "a", Jobs: []string{"job"}, Waiting: waiting, Clock: 9, Answers: 8}, true},
		"plans for a record with the same waiting runs": {record.Member{Name: "a", Jobs: []string{"job"}, Clock: 9}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newViewFixture(t)
			w.deliver(w.instances, registry.Snapshot, registry.Entry{Key: w.l.Self.Keys.Instance("a"), Owner: "A"})
			w.deliver(w.members, registry.Snapshot, entry(w, record.Member{Name: "a", Jobs: []string{"job"}, Clock: 7}))
			require.True(t, w.l.updateView())
			w.l.idle = true
			w.deliver(w.members, registry.Delta, entry(w, c.next))
			require.True(t, w.l.updateView())
			assert.Equal(t, c.plan, !w.l.idle)
			assert.Equal(t, planning.MemberRecord{Rev: registry.Rev{Seq: w.seq}, Member: c.next}, w.l.View.Members["a.A"], "the view has the record")
			assert.Equal(t, w.seq, w.l.LastCommit)
		})
	}
	t.Run("plans for a member that joins or leaves with waiting runs", func(t *testing.T) {
		w := newViewFixture(t)
		w.l.idle = true
		w.deliver(w.members, registry.Snapshot, entry(w, record.Member{Name: "a", Waiting: waiting}))
		w.l.updateView()
		assert.False(t, w.l.idle)
		w.l.idle = true
		w.deliverDelete(w.members, w.l.Self.Keys.Member("a.A"))
		w.l.updateView()
		assert.False(t, w.l.idle)
		assert.Empty(t, w.l.View.Members)
	})
}
