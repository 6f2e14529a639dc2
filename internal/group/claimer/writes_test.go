package claimer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestFindRefusalCause(t *testing.T) {
	load := batch.NewPacker[*PendingWrite]([]registry.Cond{registry.Alive("s")}, registry.PortableLimits)
	load.Add(&PendingWrite{}, batch.Items{
		Conds: []registry.Cond{registry.At("plan/job", registry.Rev{Seq: 1})},
		Ops:   []registry.Op{registry.Set("claims/a.A/job", registry.Rev{Seq: 2}, nil)},
	})
	ld := *load.Finish()
	refused := func(item int) error { return fmt.Errorf("commit: %w", registry.Conflict(ld.Txn, item)) }
	for _, c := range []struct {
		err  error
		want event.RefusalCause
	}{
		{refused(0), event.RefusedBySession},
		{refused(1), event.RefusedByPlan},
		{refused(2), event.RefusedByRecord},
		{fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, refused(2)), event.RefusedByRecord},
		{registry.ErrSessionLost, event.RefusedBySession},
		{fmt.Errorf("%w: %w", registry.ErrNotApplied, registry.ErrQuota), event.RefusedByStore},
		{registry.ErrPermission, event.RefusedByStore},
		{errors.Join(registry.ErrNotApplied, registry.ErrClosed), 0},
		{errors.Join(registry.ErrNotApplied, context.Canceled), 0},
	} {
		assert.Equal(t, c.want, findRefusalCause(WriteResult{Load: ld, Err: c.err}), "%v", c.err)
	}
}

func TestClaimer_RefusedClaim(t *testing.T) {
	t.Run("waits for a newer plan", func(t *testing.T) {
		keys, err := record.NewKeys("test", "default")
		require.NoError(t, err)
		log, plan := slog.New(slog.DiscardHandler), coordtest.PlanOfOwnShards(t, 1)
		plans := feed.New(keys.Plans(), log, func(registry.Entry) (*record.Plan, error) { return plan, nil })
		clock := coordtest.Start.Time().Add(90 * time.Second)
		c := New(Config{
			Me: "me", Keys: keys, Reg: memory.New().Client("a"), Session: &fixedSession{state: registry.SessionConnected, safe: clock},
			Work: &startedRuns{}, Log: log, Blocked: &BlockedShards{}, Clock: func() time.Time { return clock },
			Namespace: Namespace{Unconditional: true},
		}, plans)
		c.MayClaim = true
		plans.RecordWrite("job", registry.Rev{Seq: 1}, plan)
		c.ApplyPlans(t.Context())
		claim := c.NextWrite(clock)
		require.NotNil(t, claim)

		c.WritesInFlight++
		require.NoError(t, c.ApplyResult(t.Context(), WriteResult{Load: *claim, Err: registry.Conflict(claim.Txn, 1)}))
		assert.Nil(t, c.NextWrite(clock), "the plan is not the current one")
		plans.RecordWrite("job", registry.Rev{Seq: 2}, plan)
		c.ApplyPlans(t.Context())
		assert.NotNil(t, c.NextWrite(clock))
	})
}

func TestClaimer_AppliesTheRecordOfTheNamespace(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	rev := func(seq uint64) registry.Rev { return registry.Rev{Seq: seq} }
	refused := func(c *Claimer) WriteResult {
		conds := append([]registry.Cond{registry.Alive("s")}, c.Namespace.requirements(keys.Meta())...)
		load := batch.NewPacker[*PendingWrite](conds, registry.PortableLimits)
		load.Add(&PendingWrite{Job: &JobState{}}, batch.Items{Ops: []registry.Op{registry.Create("claims/a.A/job", nil)}})
		ld := *load.Finish()
		return WriteResult{Load: ld, Err: registry.Conflict(ld.Txn, namespaceItem)}
	}
	for name, c := range map[string]struct {
		before, read Namespace
		err          error
		want         Namespace
		setBack      bool
	}{
		"that has a higher base":                {before: Namespace{FenceBase: 5, Rev: rev(1)}, read: Namespace{FenceBase: 7, Rev: rev(2)}, want: Namespace{FenceBase: 7, Rev: rev(2)}},
		"that has a lower base":                 {before: Namespace{FenceBase: 5, Rev: rev(1)}, read: Namespace{Rev: rev(2)}, want: Namespace{FenceBase: 5, Rev: rev(2)}},
		"that was deleted":                      {before: Namespace{FenceBase: 5, Rev: rev(1)}, want: Namespace{FenceBase: 5}},
		"that was created again":                {before: Namespace{FenceBase: 5}, read: Namespace{Rev: rev(2)}, want: Namespace{FenceBase: 5, Rev: rev(2)}},
		"that is a foreign value":               {before: Namespace{FenceBase: 5, Rev: rev(1)}, read: Namespace{Unconditional: true}, want: Namespace{FenceBase: 5, Unconditional: true}},
		"that is older: the store was set back": {before: Namespace{Rev: rev(9)}, read: Namespace{Rev: rev(8)}, err: registry.ErrSessionLost, want: Namespace{Rev: rev(9)}, setBack: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(Config{Blocked: &BlockedShards{}, Keys: keys, Namespace: c.before, Log: slog.New(slog.DiscardHandler)}, nil)
			w := refused(l)
			require.Equal(t, event.RefusedByRecord, findRefusalCause(w))
			w.namespace = c.read
			l.WritesInFlight = 1
			err := l.ApplyResult(t.Context(), w)
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.want, l.Namespace)
			assert.Equal(t, c.setBack, l.SetBack)
			assert.Equal(t, c.err == nil, len(l.dirty) > 0, "the job is written again")
		})
	}
	t.Run("again and again until it can be read", func(t *testing.T) {
		l := New(Config{Blocked: &BlockedShards{}, Keys: keys, Namespace: Namespace{Rev: rev(1)}, Log: slog.New(slog.DiscardHandler), Clock: time.Now}, nil)
		w := refused(l)
		w.namespaceErr = registry.ErrPermission
		l.WritesInFlight = 1
		require.NoError(t, l.ApplyResult(t.Context(), w))
		assert.Equal(t, 1, l.agenda.jobs.Len())
	})
}

func TestClaimer_ForgetsTheMovesOfADeletedPlan(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	log, plan := slog.New(slog.DiscardHandler), coordtest.PlanOfOwnShards(t, 1)
	plan.Frozen = shardset.Of(0)
	plans := feed.New(keys.Plans(), log, func(registry.Entry) (*record.Plan, error) { return plan, nil })
	c := New(Config{Me: "me", Keys: keys, Reg: memory.New().Client("a"), Work: &startedRuns{}, Log: log, Clock: time.Now, SetSupported: func(string, bool) {}}, plans)
	plans.RecordWrite("job", registry.Rev{Seq: 1}, plan)
	c.ApplyPlans(t.Context())
	require.Len(t, c.Frozen, 1)
	plans.ApplyBatch(registry.Batch{Kind: registry.Delta, Rev: registry.Rev{Seq: 2}, Deletes: []registry.Key{keys.Plan("job")}})
	c.ApplyPlans(t.Context())
	assert.Empty(t, c.Frozen, "else no end of any job would wait for others")
}

func TestClaimer_WritesTheNextCopyOfEndsAtTheRevisionOfTheLast(t *testing.T) {
	c := New(Config{Session: &fixedSession{state: registry.SessionConnected}, Blocked: &BlockedShards{}}, nil)
	j := &JobState{Segment: "job"}
	for seq := range uint64(3) {
		c.WritesInFlight = 1
		written := registry.Rev{Seq: seq + 1}
		e := &PendingWrite{Job: j, ends: []byte("{}")}
		require.NoError(t, c.ApplyResult(t.Context(), WriteResult{Load: batch.Load[*PendingWrite]{Parts: []*PendingWrite{e}}, Rev: written}))
		assert.Equal(t, written, j.EndsRev)
	}
}

func TestClaimer_StartsNothingInAStoreThatWasSetBack(t *testing.T) {
	for seq, want := range map[uint64]error{8: registry.ErrSessionLost, 9: registry.ErrSessionLost, 10: nil} {
		work := &startedRuns{}
		l := New(Config{Session: &fixedSession{state: registry.SessionConnected, safe: time.Now().Add(time.Hour)}, Work: work, Clock: time.Now, Blocked: &BlockedShards{}}, nil)
		l.WritesInFlight = 1
		j := &JobState{Segment: "job", Plan: coordtest.PlanOfOwnShards(t, 1)}
		e := &PendingWrite{Job: j, plan: j.Plan, decision: claiming.Decision{Starts: coordtest.Runs(shardset.Of(0), coordtest.Fire(1, 1))}}
		err := l.ApplyResult(t.Context(), WriteResult{Load: batch.Load[*PendingWrite]{Parts: []*PendingWrite{e}}, Rev: registry.Rev{Seq: seq}, seen: 9})
		require.ErrorIs(t, err, want)
		assert.Equal(t, want != nil, l.SetBack)
		assert.Equal(t, want == nil, len(work.runs) > 0)
	}
}
