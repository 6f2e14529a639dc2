package planning

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Share returns what a change adds to a transaction. A plan for which there is no room
// otherwise goes without what is told to people only.
func (c *Change) EncodeShare(k record.Keys) (batch.Share, error) {
	most := registry.PortableLimits.ValueBytes
	value, err := record.Encode(c.Plan)
	if err == nil && len(value) > most {
		c.Plan.Decisions, c.Plan.Failures = nil, nil
		value, err = record.Encode(c.Plan)
	}
	if err != nil {
		return batch.Share{}, err
	}
	if len(value) > most {
		return batch.Share{}, fmt.Errorf("%w: plan of %q has %d bytes, at most %d", registry.ErrTooLarge, c.Plan.Job, len(value), most)
	}
	pc := batch.Share{Conds: slices.Clone(c.conds), Ops: slices.Clone(c.ops)}
	for _, s := range c.Expired {
		pc.Conds = append(pc.Conds, registry.Dead(s))
	}
	if c.rev.IsZero() {
		pc.Ops = append(pc.Ops, registry.Create(k.Plan(c.Segment), value))
	} else {
		pc.Ops = append(pc.Ops, registry.Set(k.Plan(c.Segment), c.rev, value))
	}
	return pc, nil
}

// Loads returns the transactions of a burial, in order.
func (b *Reaping) PackLoads(limits registry.Limits, term []registry.Cond) []batch.Load[batch.Share] {
	common := append(slices.Clone(term), registry.Dead(record.SessionOf(b.Incarnation)))
	return batch.Pack(common, b.Parts, limits, func(s batch.Share) batch.Share { return s }, func(batch.Share) bool { return false })
}
