package leader

import (
	"encoding/json"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/elector"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/coordinator/internal/planning"
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
