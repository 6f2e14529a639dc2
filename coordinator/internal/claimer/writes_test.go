package claimer

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/event"
	"github.com/rota-dev/rota/registry"
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
