package leader

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_KnowsItsOwnWrites(t *testing.T) {
	epoch, err := record.NewEpoch(1, 1, []byte(`{"name":"job","shards":1}`))
	require.NoError(t, err)
	known := &record.Plan{Job: "job", Epochs: []record.Epoch{epoch}}
	offering := planning.MemberRecord{Member: record.Member{Jobs: []string{"job"}}}
	l := &Leader{Log: slog.New(slog.DiscardHandler), synced: true, View: planning.View{
		Term: registry.Rev{Seq: 10}, Plans: map[string]planning.PlanRecord{"job": {Rev: registry.Rev{Seq: 20}, Plan: known}}, EditedPlans: map[string]bool{},
		Live: map[registry.SessionID]bool{"A": true}, Members: map[string]planning.MemberRecord{"a.A": offering},
	}}
	l.Edits = NewEdits(nil, record.Keys{}, l.Log)
	written := func(seq uint64) feed.Update[*record.Plan] {
		return feed.Update[*record.Plan]{Name: "job", Rev: registry.Rev{Seq: seq}, Value: &record.Plan{Job: "job"}}
	}
	assert.False(t, l.Edits.detectPlanEdit(&l.View, written(9), l.synced), "written by an earlier leader")
	l.Edits.recordUnknown("job")
	assert.False(t, l.Edits.detectPlanEdit(&l.View, written(21), l.synced), "the leader's own transaction of unknown outcome may have written it")
	assert.True(t, l.Edits.detectPlanEdit(&l.View, written(22), l.synced), "the unknown outcome excuses one change")
	assert.Same(t, known, l.View.Plans["job"].Plan)
	assert.EqualValues(t, 22, l.View.Plans["job"].Rev.Seq)
	l.recordPlan(planning.Change{Segment: "job", Plan: known}, registry.Rev{Seq: 30})
	assert.Empty(t, l.View.EditedPlans)
	assert.False(t, l.Edits.detectPlanEdit(&l.View, written(30), l.synced))
	assert.False(t, l.Edits.detectPlanEdit(&l.View, written(25), l.synced), "an earlier write of this term, delivered late")
	assert.True(t, l.Edits.detectPlanEdit(&l.View, feed.Update[*record.Plan]{Name: "job", Deleted: true}, l.synced))
	l.View.Live = nil
	assert.False(t, l.Edits.detectPlanEdit(&l.View, feed.Update[*record.Plan]{Name: "job", Deleted: true}, l.synced), "no live instance offers the job")
}

// restoring returns a leader that has observed no definition, or an old one, of a job in force.
func restoring(t *testing.T) (l *Leader, reg registry.Registry, key registry.Key) {
	reg = memory.New().Client("a")
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	term, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Leader(), []byte("{}"))}})
	require.NoError(t, err)
	key = keys.Job("job")
	e, err := record.NewEpoch(1, 0, []byte(`{"name":"job","revision":2,"shards":4}`))
	require.NoError(t, err)
	create := func(key registry.Key) registry.Rev {
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, []byte("{}"))}})
		require.NoError(t, err)
		return rev
	}
	l = &Leader{Self: elector.Self{Reg: reg, Keys: keys}, Log: slog.New(slog.DiscardHandler), Progress: &elector.Progress{}, Nudge: make(chan struct{}, 1), View: planning.View{
		Term: term, Jobs: map[string]planning.JobRecord{},
		Plans:   map[string]planning.PlanRecord{"job": {Rev: create(keys.Plan("job")), Plan: &record.Plan{Job: "job", Epochs: []record.Epoch{e}}}},
		Live:    map[registry.SessionID]bool{"A": true},
		Members: map[string]planning.MemberRecord{"a.A": {Rev: create(keys.Member("a.A")), Member: record.Member{Jobs: []string{"job"}}}},
	}}
	l.Edits = NewEdits(reg, keys, l.Log)
	l.jobs = feed.New[planning.JobRecord](keys.Jobs(), l.Log, nil).NewReader(func() {})
	return l, reg, key
}

func TestRestore_Guards(t *testing.T) {
	t.Run("the term", func(t *testing.T) {
		l, reg, key := restoring(t)
		_, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set(l.Self.Keys.Leader(), l.View.Term, []byte("{}"))}})
		require.NoError(t, err)
		require.ErrorIs(t, l.restoreRecords(t.Context()), elector.ErrTermOver)
		_, err = reg.Get(t.Context(), key, registry.ReadOptions{})
		assert.ErrorIs(t, err, registry.ErrNotFound)
	})
	t.Run("a definition that is there", func(t *testing.T) {
		l, reg, key := restoring(t)
		first, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, []byte(`old`))}})
		require.NoError(t, err)
		newest, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set(key, first, []byte(`newest`))}})
		require.NoError(t, err)
		require.NoError(t, l.restoreRecords(t.Context()), "the stored definition was not observed")
		l.View.Jobs["job"] = planning.JobRecord{Rev: first, Job: record.Job{Revision: 1}}
		require.NoError(t, l.restoreRecords(t.Context()), "an older definition was observed")
		stays, err := reg.Get(t.Context(), key, registry.ReadOptions{})
		require.NoError(t, err)
		assert.Equal(t, newest, stays.Modified)
		l.View.Jobs["job"] = planning.JobRecord{Rev: newest, Job: record.Job{Revision: 1}}
		require.NoError(t, l.restoreRecords(t.Context()))
		stored, err := reg.Get(t.Context(), key, registry.ReadOptions{})
		require.NoError(t, err)
		assert.Contains(t, string(stored.Value), `"revision":2`)
	})
}

// An operator forgets a job, and the watch of definitions is ahead of those of plans and of members.
func TestRestore_LeavesAForgottenJob(t *testing.T) {
	for _, what := range []string{"whose plan is gone too", "that no instance offers any more"} {
		t.Run(what, func(t *testing.T) {
			l, reg, key := restoring(t)
			logs := &coordtest.Logbook{}
			l.Edits.log = slog.New(slog.NewTextHandler(logs, nil))
			op := registry.Delete(l.Self.Keys.Plan("job"), l.View.Plans["job"].Rev)
			if what == "that no instance offers any more" {
				op = registry.Set(l.Self.Keys.Member("a.A"), l.View.Members["a.A"].Rev, []byte("withdrawn"))
			}
			_, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{op}})
			require.NoError(t, err)
			require.NoError(t, l.restoreRecords(t.Context()))
			_, err = reg.Get(t.Context(), key, registry.ReadOptions{})
			require.ErrorIs(t, err, registry.ErrNotFound)
			assert.True(t, l.Edits.refused, "the leader tries again when its view changes")
			assert.Empty(t, logs.String())
		})
	}
}

// Forget deletes the definition and the plan of a job in one commit.
func TestRestore_AfterADeletedPlan(t *testing.T) {
	// observeDeletion makes a leader observe the deletion of the plan, whose last Rev is rev.
	observeDeletion := func(t *testing.T, l *Leader, rev registry.Rev) {
		l.synced, l.View.EditedPlans = true, map[string]bool{}
		l.View.Plans["job"] = planning.PlanRecord{Rev: rev, Plan: l.View.Plans["job"].Plan}
		require.True(t, l.Edits.detectPlanEdit(&l.View, feed.Update[*record.Plan]{Name: "job", Deleted: true}, l.synced))
		require.NoError(t, l.restoreRecords(t.Context()))
		assert.Empty(t, l.Edits.deleted)
	}
	define := func(t *testing.T, reg registry.Registry, key registry.Key) registry.Rev {
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(key, []byte(`{"name":"job","revision":1,"shards":4}`))}})
		require.NoError(t, err)
		return rev
	}
	t.Run("the plan, if the definition is older", func(t *testing.T) {
		l, reg, key := restoring(t)
		rev := define(t, reg, key)
		observeDeletion(t, l, registry.Rev{Seq: rev.Seq + 1})
		assert.Equal(t, map[string]bool{"job": true}, l.View.EditedPlans)
		assert.Contains(t, l.View.Plans, "job")
	})
	t.Run("nothing, if the definition was stored again since", func(t *testing.T) {
		l, reg, key := restoring(t)
		rev := define(t, reg, key)
		observeDeletion(t, l, registry.Rev{Seq: rev.Seq - 1})
		assert.Empty(t, l.View.EditedPlans)
		assert.Empty(t, l.View.Plans)
	})
	t.Run("the definition alone, if it was deleted too", func(t *testing.T) {
		l, reg, key := restoring(t)
		observeDeletion(t, l, l.View.Term)
		assert.Empty(t, l.View.EditedPlans)
		assert.Empty(t, l.View.Plans)
		stored, err := reg.Get(t.Context(), key, registry.ReadOptions{})
		require.NoError(t, err)
		assert.Contains(t, string(stored.Value), `"revision":2`)
	})
}

func TestEdits_RereadOfClaimsIsDueOnceInAnInterval(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	e := NewEdits(memory.New().Client("a"), keys, slog.New(slog.DiscardHandler))
	now := time.Now()
	require.False(t, e.reread(t.Context(), now))
	e.rereadClaimsAt = now
	require.True(t, e.reread(t.Context(), now))
	assert.Equal(t, now.Add(unreadableReread), e.nextDue(), "even if no round plans, the loop does not spin")
	assert.False(t, e.reread(t.Context(), now))
}
