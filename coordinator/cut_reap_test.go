package coordinator

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_BuriesTheDeadAndPassesOverTheLiving(t *testing.T) {
	reg := memory.New().Client("a")
	m, err := NewMember(reg, MemberOptions{Namespace: "test", Instance: "a"})
	require.NoError(t, err)
	joined, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	l := &leader{progress: &progress{}, restoring: newRestoring(), m: m, log: slog.New(slog.DiscardHandler), view: view{keys: m.keys, members: map[string]memberItem{}}}

	var burials []burial
	for _, incarnation := range []string{"b." + string(joined.ID()), "c.C"} {
		key := m.keys.Member(incarnation)
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		require.NoError(t, err)
		l.view.members[incarnation] = memberItem{rev: rev}
		burials = append(burials, burial{incarnation: incarnation, parts: []share{{ops: []registry.Op{registry.Delete(key, rev)}}}})
	}
	leader, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(m.keys.Leader(), nil)}})
	require.NoError(t, err)

	require.NoError(t, l.bury(t.Context(), burials, []registry.Cond{registry.At(m.keys.Leader(), leader)}))
	_, err = reg.Get(t.Context(), m.keys.Member(burials[0].incarnation), registry.ReadOptions{})
	assert.NoError(t, err)
	assert.Contains(t, l.view.members, burials[0].incarnation)
	_, err = reg.Get(t.Context(), m.keys.Member("c.C"), registry.ReadOptions{})
	assert.ErrorIs(t, err, registry.ErrNotFound)
	assert.NotContains(t, l.view.members, "c.C")

	wrong := []registry.Cond{registry.Absent(m.keys.Leader())}
	require.ErrorIs(t, l.bury(t.Context(), burials[:1], wrong), errTermOver)
}

// The records of members and their sessions come by different watches.
func TestLeader_TakesNobodyForDeadWhoHasJustJoined(t *testing.T) {
	w := newWatched(t)
	w.tell(w.members, registry.Snapshot, w.member("old.O"))
	w.tell(w.instances, registry.Snapshot)
	require.True(t, w.l.takeNews())
	assert.Equal(t, []string{"old.O"}, w.l.view.deadMembers(), "it was there before the term")

	w.tell(w.members, registry.Delta, w.member("new.N"))
	w.l.takeNews()
	assert.Equal(t, []string{"old.O"}, w.l.view.deadMembers())
	assert.False(t, w.l.view.alive("new.N"), "it is dealt nothing either")
	w.tell(w.instances, registry.Delta, registry.Entry{Key: w.l.m.keys.Instance("new"), Owner: "N"})
	w.l.takeNews()
	assert.True(t, w.l.view.alive("new.N"))
	assert.Empty(t, w.l.view.newborn)
	w.gone(w.instances, w.l.m.keys.Instance("new"))
	w.l.takeNews()
	assert.Equal(t, []string{"new.N", "old.O"}, w.l.view.deadMembers())

	w.tell(w.members, registry.Delta, w.member("never.seen"), w.member("went.by.itself"))
	w.l.takeNews()
	w.gone(w.members, w.l.m.keys.Member("went.by.itself"))
	w.l.takeNews()
	assert.Equal(t, []string{"new.N", "old.O"}, w.l.view.deadMembers())
	assert.Len(t, w.l.view.newborn, 1)
	w.l.content = true
	w.l.takeForDead()
	assert.False(t, w.l.content)
	assert.Equal(t, []string{"never.seen", "new.N", "old.O"}, w.l.view.deadMembers(), "the slow tick has it looked at")
	w.tell(w.members, registry.Delta, w.member("never.seen"))
	w.l.takeNews()
	assert.Len(t, w.l.view.deadMembers(), 3, "what it wrote last makes it no younger")
}

// watched is a leader whose watches tell it what a test says.
type watched struct {
	l         *leader
	instances *feed[registry.SessionID]
	members   *feed[record.Member]
	seq       uint64
}

func newWatched(t *testing.T) *watched {
	log := slog.New(slog.DiscardHandler)
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	w := &watched{
		instances: newFeed(keys.Instances(), log, func(e registry.Entry) (registry.SessionID, error) { return e.Owner, nil }),
		members:   newFeed(keys.Members(), log, func(e registry.Entry) (record.Member, error) { return record.Decode[record.Member](e.Value) }),
	}
	w.l = &leader{
		m: &Member{keys: keys}, log: log, restoring: newRestoring(), nudge: make(chan struct{}, 1), broken: map[string]bool{},
		view: view{
			live: map[registry.SessionID]bool{}, members: map[string]memberItem{}, newborn: map[string]bool{},
			jobs: map[string]jobItem{}, control: map[string]controlItem{}, plans: map[string]planItem{},
		},
	}
	wake := w.l.wakeUp
	w.l.instances, w.l.members = w.instances.reader(wake), w.members.reader(wake)
	jobs, controlled, plans := newFeed[jobItem](keys.Jobs(), log, nil), newFeed[controls](keys.Controls(), log, nil), newFeed[*record.Plan](keys.Plans(), log, nil)
	w.l.jobs, w.l.controls, w.l.plans = jobs.reader(wake), controlled.reader(wake), plans.reader(wake)
	jobs.Apply(registry.Batch{Kind: registry.Snapshot})
	controlled.Apply(registry.Batch{Kind: registry.Snapshot})
	plans.Apply(registry.Batch{Kind: registry.Snapshot})
	return w
}

func (w *watched) member(incarnation string) registry.Entry {
	return registry.Entry{Key: w.l.m.keys.Member(incarnation), Value: []byte("{}")}
}

// tell has a watch tell of entries, written by the newest commit.
func (w *watched) tell(f interface{ Apply(registry.Batch) }, kind registry.BatchKind, entries ...registry.Entry) {
	w.seq++
	for i := range entries {
		entries[i].Modified = registry.Rev{Seq: w.seq}
	}
	f.Apply(registry.Batch{Kind: kind, Rev: registry.Rev{Seq: w.seq}, Puts: entries})
}

func (w *watched) gone(f interface{ Apply(registry.Batch) }, key registry.Key) {
	w.seq++
	f.Apply(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: w.seq}, Deletes: []registry.Key{key}})
}
