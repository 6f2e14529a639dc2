package leader

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/rota-dev/rota/internal/group/eventlog"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// newPlanner returns a leader whose view has one instance and jobs without a plan.
func newPlanner(t *testing.T, reg registry.Registry, names ...string) *Leader {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	term, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Leader(), []byte("{}"))}})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	l := &Leader{
		Self: elector.Self{Reg: reg, Keys: keys}, Log: log, Progress: &elector.Progress{},
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
	l.Edits = NewEdits(reg, keys, log)
	l.logs = eventlog.NewPlanLog(log)
	return l
}

func TestLeader_ConflictOfAPlan(t *testing.T) {
	reg := memory.New().Client("a")
	names := []string{"one", "three", "two"}
	l := newPlanner(t, reg, names...)
	keys := l.Self.Keys
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

func TestLeader_CommitsManyPlans(t *testing.T) {
	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprintf("job%02d", i)
	}
	bubble := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
	commit := func(t *testing.T, answer func(n int) error) (r *slowStore, l *Leader, err error) {
		r = &slowStore{Registry: memory.New().Client("a"), answer: func(int) error { return nil }}
		l = newPlanner(t, r, names...)
		r.sent, r.answer = 0, answer
		_, err = l.CommitDecision(t.Context(), planning.Decide(&l.View))
		return r, l, err
	}
	bubble("in several transactions at once", func(t *testing.T) {
		began := time.Now()
		r, l, err := commit(t, func(int) error { return nil })
		require.NoError(t, err)
		assert.Equal(t, 40, r.sent)
		assert.Len(t, l.View.Plans, 40)
		assert.Equal(t, (1+40/flights)*time.Second, time.Since(began), "the record of the term, and five rounds of flights")
	})
	bubble("those first whose shards lost their owner and are due first", func(t *testing.T) {
		l := newPlanner(t, memory.New().Client("a"), names...)
		changes := planning.Decide(&l.View).Changes
		changes[20].Due, changes[30].Due, changes[35].Due = 7, 5, 7
		var order []string
		for c := range l.encodeShares(changes) {
			order = append(order, c.Segment)
		}
		assert.Equal(t, []string{"job30", "job20", "job35", "job00", "job01"}, order[:5])
		assert.Len(t, order, 40)
		assert.Equal(t, "job00", changes[0].Segment, "the decision is not changed")
	})
	bubble("and after an error sends no more, but awaits those under way", func(t *testing.T) {
		r, l, err := commit(t, func(n int) error {
			if n == 3 {
				return registry.ErrPermission
			}
			return nil
		})
		require.ErrorIs(t, err, registry.ErrPermission)
		assert.LessOrEqual(t, r.sent, 2*flights)
		assert.Len(t, l.View.Plans, r.sent-1)
	})
	bubble("and after the end of its term no more either", func(t *testing.T) {
		r, _, err := commit(t, func(int) error { return &registry.ConflictError{Index: 0} })
		require.ErrorIs(t, err, elector.ErrTermOver)
		assert.LessOrEqual(t, r.sent, 2*flights)
	})
}

// slowStore is a registry whose transactions take a second and hold one plan each.
type slowStore struct {
	registry.Registry
	mu     sync.Mutex
	sent   int
	answer func(n int) error // of the n-th transaction
}

func (s *slowStore) Limits() registry.Limits {
	l := s.Registry.Limits()
	l.TxnItems = 2 // the term, and a plan
	return l
}

func (s *slowStore) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	s.mu.Lock()
	s.sent++
	n := s.sent
	s.mu.Unlock()
	time.Sleep(time.Second)
	if err := s.answer(n); err != nil {
		return registry.Rev{}, err
	}
	return s.Registry.Txn(ctx, t)
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
