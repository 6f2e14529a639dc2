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

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/coordtest"
	"github.com/rota-dev/rota/coordinator/internal/event"
	"github.com/rota-dev/rota/coordinator/internal/feed"
	"github.com/rota-dev/rota/internal/record"
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
