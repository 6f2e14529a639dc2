package coordinator

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// load is a transaction and what it is made of.
type load[T any] struct {
	txn    registry.Txn
	parts  []T
	indexs []int // by item of the transaction: the part it belongs to, -1 for all
}

// owner returns the part that an item of the transaction belongs to.
func (l *load[T]) owner(index int) (part int, ok bool) {
	if index < 0 || index >= len(l.indexs) || l.indexs[index] < 0 {
		return 0, false
	}
	return l.indexs[index], true
}

// share is one part's share of a transaction.
type share struct {
	conds []registry.Cond
	ops   []registry.Op
}

func (p share) size() (items, bytes int) {
	for _, c := range p.conds {
		bytes += c.Size()
	}
	for _, o := range p.ops {
		bytes += o.Size()
	}
	return len(p.conds) + len(p.ops), bytes
}

// pack fills as few transactions as it can with parts, in order, each whole. common
// conditions stand in all of them. A part that asks to be alone, or that no other has
// room beside, goes alone. Conditions on a session
// that several parts have are stated once.
func pack[T any](common []registry.Cond, parts []T, limits registry.Limits, shareOf func(T) share, alone func(T) bool) []load[T] {
	var out []load[T]
	var conds []registry.Cond
	var condOf, opOf []int
	var cur load[T]
	bytes := 0
	flush := func() {
		if len(cur.parts) == 0 {
			return
		}
		cur.txn.ID = registry.NewTxnID()
		cur.txn.If = conds
		cur.indexs = append(condOf, opOf...)
		out = append(out, cur)
	}
	begin := func() {
		cur, conds, condOf, opOf, bytes = load[T]{}, slices.Clone(common), nil, nil, 0
		for _, c := range common {
			condOf = append(condOf, -1)
			bytes += c.Size()
		}
	}
	begin()
	for _, part := range parts {
		pc := shareOf(part)
		items, size := pc.size()
		full := len(conds)+len(cur.txn.Then)+items > limits.TxnItems || bytes+size > limits.TxnBytes
		if len(cur.parts) > 0 && (full || alone(part) || alone(cur.parts[0])) {
			flush()
			begin()
		}
		n := len(cur.parts)
		cur.parts = append(cur.parts, part)
		for _, c := range pc.conds {
			if c.Session != "" && slices.Contains(conds, c) {
				continue
			}
			conds, condOf = append(conds, c), append(condOf, n)
			bytes += c.Size()
		}
		for _, o := range pc.ops {
			cur.txn.Then, opOf = append(cur.txn.Then, o), append(opOf, n)
			bytes += o.Size()
		}
	}
	flush()
	return out
}

// share returns what a change adds to a transaction. A plan for which there is no room
// otherwise goes without what is told to people only.
func (c *change) share(k record.Keys) (share, error) {
	most := registry.PortableLimits.ValueBytes
	value, err := record.Encode(c.plan)
	if err == nil && len(value) > most {
		c.plan.Decisions, c.plan.Failures = nil, nil
		value, err = record.Encode(c.plan)
	}
	if err != nil {
		return share{}, err
	}
	if len(value) > most {
		return share{}, fmt.Errorf("%w: plan of %q has %d bytes, at most %d", registry.ErrTooLarge, c.plan.Job, len(value), most)
	}
	pc := share{conds: slices.Clone(c.conds), ops: slices.Clone(c.ops)}
	for _, s := range c.dead {
		pc.conds = append(pc.conds, registry.Dead(s))
	}
	if c.rev.IsZero() {
		pc.ops = append(pc.ops, registry.Create(k.Plan(c.segment), value))
	} else {
		pc.ops = append(pc.ops, registry.Set(k.Plan(c.segment), c.rev, value))
	}
	return pc, nil
}

// loads returns the transactions of a burial, in order.
func (b *burial) loads(limits registry.Limits, term []registry.Cond) []load[share] {
	common := append(slices.Clone(term), registry.Dead(sessionOf(b.incarnation)))
	return pack(common, b.parts, limits, func(s share) share { return s }, func(share) bool { return false })
}
