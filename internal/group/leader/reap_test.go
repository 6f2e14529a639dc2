package leader

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_ReapsExpiredIncarnationsOnly(t *testing.T) {
	reg := memory.New().Client("a")
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	joined, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	l := &Leader{Progress: &elector.Progress{}, Self: elector.Self{Reg: reg, Keys: keys}, Log: slog.New(slog.DiscardHandler), View: planning.View{Keys: keys, Members: map[string]planning.MemberRecord{}}}

	var reapings []planning.Reaping
	for _, incarnation := range []string{"b." + string(joined.ID()), "c.C"} {
		key := keys.Member(incarnation)
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		require.NoError(t, err)
		l.View.Members[incarnation] = planning.MemberRecord{Rev: rev}
		reapings = append(reapings, planning.Reaping{Incarnation: incarnation, Parts: []batch.Items{{Ops: []registry.Op{registry.Delete(key, rev)}}}})
	}
	leader, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Leader(), nil)}})
	require.NoError(t, err)

	require.NoError(t, l.reapAll(t.Context(), reapings, []registry.Cond{registry.At(keys.Leader(), leader)}))
	_, err = reg.Get(t.Context(), keys.Member(reapings[0].Incarnation), registry.ReadOptions{})
	assert.NoError(t, err)
	assert.Contains(t, l.View.Members, reapings[0].Incarnation)
	_, err = reg.Get(t.Context(), keys.Member("c.C"), registry.ReadOptions{})
	assert.ErrorIs(t, err, registry.ErrNotFound)
	assert.NotContains(t, l.View.Members, "c.C")

	wrong := []registry.Cond{registry.Absent(keys.Leader())}
	require.ErrorIs(t, l.reapAll(t.Context(), reapings[:1], wrong), elector.ErrTermOver)
}

// Member records and instance keys arrive by different watches.
func TestLeader_DoesNotExpireMembersThatHaveJustJoined(t *testing.T) {
	w := newViewFixture(t)
	w.deliver(w.members, registry.Snapshot, w.member("old.O"))
	w.deliver(w.instances, registry.Snapshot)
	require.True(t, w.l.updateView())
	assert.Equal(t, []string{"old.O"}, w.l.View.ExpiredMembers(), "it existed before the term")

	w.deliver(w.members, registry.Delta, w.member("new.N"))
	w.l.updateView()
	assert.Equal(t, []string{"old.O"}, w.l.View.ExpiredMembers())
	assert.False(t, w.l.View.Alive("new.N"), "it is assigned nothing either")
	w.deliver(w.instances, registry.Delta, registry.Entry{Key: w.l.Self.Keys.Instance("new"), Owner: "N"})
	w.l.updateView()
	assert.True(t, w.l.View.Alive("new.N"))
	assert.Empty(t, w.l.View.JustJoined)
	w.deliverDelete(w.instances, w.l.Self.Keys.Instance("new"))
	w.l.updateView()
	assert.Equal(t, []string{"new.N", "old.O"}, w.l.View.ExpiredMembers())

	w.deliver(w.members, registry.Delta, w.member("never.seen"), w.member("went.by.itself"))
	w.l.updateView()
	w.deliverDelete(w.members, w.l.Self.Keys.Member("went.by.itself"))
	w.l.updateView()
	assert.Equal(t, []string{"new.N", "old.O"}, w.l.View.ExpiredMembers())
	assert.Len(t, w.l.View.JustJoined, 1)
	w.l.idle = true
	w.l.forgetJustJoined()
	assert.False(t, w.l.idle)
	assert.Equal(t, []string{"never.seen", "new.N", "old.O"}, w.l.View.ExpiredMembers(), "the regular check covers it")
	w.deliver(w.members, registry.Delta, w.member("never.seen"))
	w.l.updateView()
	assert.Len(t, w.l.View.ExpiredMembers(), 3, "a later write does not make it a new member")
}

// viewFixture is a leader whose feeds get their batches from a test.
type viewFixture struct {
	l         *Leader
	instances *feed.Feed[registry.SessionID]
	members   *feed.Feed[record.Member]
	seq       uint64
}

func newViewFixture(t *testing.T) *viewFixture {
	log := slog.New(slog.DiscardHandler)
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	w := &viewFixture{
		instances: feed.New(keys.Instances(), log, func(e registry.Entry) (registry.SessionID, error) { return e.Owner, nil }),
		members:   feed.New(keys.Members(), log, func(e registry.Entry) (record.Member, error) { return record.Decode[record.Member](e.Value) }),
	}
	w.l = &Leader{
		Self: elector.Self{Keys: keys}, Log: log, Nudge: make(chan struct{}, 1), BrokenPlans: map[string]bool{},
		View: planning.View{
			Live: map[registry.SessionID]bool{}, Members: map[string]planning.MemberRecord{}, JustJoined: map[string]bool{},
			Jobs: map[string]planning.JobRecord{}, Control: map[string]planning.ControlRecord{}, Plans: map[string]planning.PlanRecord{},
		},
	}
	w.l.Edits = NewEdits(nil, keys, log)
	wake := w.l.wakeUp
	w.l.instances, w.l.members = w.instances.NewReader(wake), w.members.NewReader(wake)
	jobs, controlled, plans := feed.New[planning.JobRecord](keys.Jobs(), log, nil), feed.New[controls](keys.Controls(), log, nil), feed.New[*record.Plan](keys.Plans(), log, nil)
	w.l.jobs, w.l.controls, w.l.plans = jobs.NewReader(wake), controlled.NewReader(wake), plans.NewReader(wake)
	copies := feed.New[ends](keys.Ends(), log, nil)
	w.l.ends = copies.NewReader(wake)
	copies.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
	jobs.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
	controlled.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
	plans.ApplyBatch(registry.Batch{Kind: registry.Snapshot})
	return w
}

func (w *viewFixture) member(incarnation string) registry.Entry {
	return registry.Entry{Key: w.l.Self.Keys.Member(incarnation), Value: []byte("{}")}
}

// deliver applies a batch of entries, written by the next commit.
func (w *viewFixture) deliver(f interface{ ApplyBatch(registry.Batch) }, kind registry.BatchKind, entries ...registry.Entry) {
	w.seq++
	for i := range entries {
		entries[i].Modified = registry.Rev{Seq: w.seq}
	}
	f.ApplyBatch(registry.Batch{Kind: kind, Rev: registry.Rev{Seq: w.seq}, Puts: entries})
}

func (w *viewFixture) deliverDelete(f interface{ ApplyBatch(registry.Batch) }, key registry.Key) {
	w.seq++
	f.ApplyBatch(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: w.seq}, Deletes: []registry.Key{key}})
}
