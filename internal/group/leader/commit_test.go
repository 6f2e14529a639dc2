package leader

import (
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
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

func TestLeader_ConflictOfAPlan(t *testing.T) {
	reg := memory.New().Client("a")
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	term, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Leader(), []byte("{}"))}})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	names := []string{"one", "three", "two"}
	l := &Leader{
		Self: elector.Self{Reg: reg, Keys: keys}, Log: log, Progress: &elector.Progress{}, Restorer: NewRestorer(),
		SentAlone: map[string]bool{}, PlanFeed: feed.New[*record.Plan](keys.Plans(), log, nil),
		View: planning.View{
			Keys: keys, Term: term, Now: 1, Live: map[registry.SessionID]bool{"A": true},
			Members: map[string]planning.MemberRecord{"a.A": {Member: record.Member{Name: "a", Jobs: names}}},
			Jobs:    map[string]planning.JobRecord{}, Plans: map[string]planning.PlanRecord{},
			Reads: map[string]planning.FreshRead{"a.A": {Seen: math.MaxUint64}},
		},
	}
	for _, name := range names {
		def := json.RawMessage(coordtest.Def(name, 0, 1, ""))
		job, err := record.ParseJob(def)
		require.NoError(t, err)
		l.View.Jobs[name] = planning.JobRecord{Def: def, Job: job}
	}
	// commit commits a decision with changes for a number of jobs. It returns the jobs that have plans then.
	commit := func(changes int) (planned []string) {
		d := planning.Decide(&l.View)
		require.Len(t, d.Changes, changes)
		if _, err := l.CommitDecision(t.Context(), d); err != nil {
			require.ErrorIs(t, err, registry.ErrConflict)
		}
		for _, name := range names {
			if _, ok := l.View.Plans[name]; ok {
				planned = append(planned, name)
			}
		}
		return planned
	}

	t.Run("has its change sent alone the next time, so that it holds up no other", func(t *testing.T) {
		unseen, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Plan("two"), []byte("{}"))}})
		require.NoError(t, err)
		require.Empty(t, commit(3), "the three changes are one transaction, which conflicts")
		require.Equal(t, []string{"one", "three"}, commit(3))
		_, err = reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(keys.Plan("two"), unseen)}})
		require.NoError(t, err)
		require.Equal(t, names, commit(1))
		assert.Empty(t, l.SentAlone, "a committed change ends it")
	})
}

func TestLeader_TriesAgainWithinASecondHoweverOftenARoundFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newViewFixture(t)
		reg := &refusingWrites{Registry: memory.New().Client("a")}
		session, err := reg.OpenSession(t.Context(), registry.SessionOptions{TTL: time.Hour})
		require.NoError(t, err)
		w.l.Self.Reg, w.l.Self.Session, w.l.Self.Clock, w.l.Self.Planning, w.l.Progress = reg, session, time.Now, &elector.PlanningCalls{}, &elector.Progress{}
		w.l.Elector = elector.New(w.l.Self, nil, w.l.Log)
		w.l.Elector.State.Seat, w.l.Elector.State.Successors = session.ID(), []string{"gone"} // the record of the seat is to be written
		w.deliver(w.instances, registry.Snapshot)
		w.deliver(w.members, registry.Snapshot)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var watches sync.WaitGroup
		require.ErrorIs(t, w.l.runRounds(ctx, &watches), context.DeadlineExceeded)
		watches.Wait()
		require.Greater(t, len(reg.at), 60)
		assert.Equal(t, 5*time.Millisecond, reg.at[1].Sub(reg.at[0]))
		for i, at := range reg.at[1:] {
			assert.LessOrEqual(t, at.Sub(reg.at[i]), time.Second)
		}
		require.NoError(t, session.Close(t.Context()))
	})
}

// refusingWrites is a registry that permits no transaction. It records when it got them.
type refusingWrites struct {
	registry.Registry
	at []time.Time
}

func (r *refusingWrites) Txn(context.Context, registry.Txn) (registry.Rev, error) {
	r.at = append(r.at, time.Now())
	return registry.Rev{}, registry.ErrPermission
}
