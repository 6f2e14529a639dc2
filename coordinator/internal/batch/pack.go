package batch

import (
	"slices"

	"github.com/rota-dev/rota/registry"
)

// Load is a transaction and what it is made of.
type Load[T any] struct {
	Txn    registry.Txn
	Parts  []T
	partOf []int // by item of the transaction: the part it belongs to, -1 for all
}

// PartOf returns the part that an item of the transaction belongs to.
func (l *Load[T]) PartOf(index int) (part int, ok bool) {
	if index < 0 || index >= len(l.partOf) || l.partOf[index] < 0 {
		return 0, false
	}
	return l.partOf[index], true
}

// Items is one part's share of a transaction.
type Items struct {
	Conds []registry.Cond
	Ops   []registry.Op
}

func (p Items) size() (items, bytes int) {
	for _, c := range p.Conds {
		bytes += c.Size()
	}
	for _, o := range p.Ops {
		bytes += o.Size()
	}
	return len(p.Conds) + len(p.Ops), bytes
}

// Pack fills as few transactions as it can with parts, in order, each whole. common
// conditions stand in all of them. A part that asks to be alone, or that no other has
// room beside, goes alone. Conditions on a session
// that several parts have are stated once.
func Pack[T any](common []registry.Cond, parts []T, limits registry.Limits, shareOf func(T) Items, alone func(T) bool) []Load[T] {
	var out []Load[T]
	var conds []registry.Cond
	var condOf, opOf []int
	var cur Load[T]
	bytes := 0
	flush := func() {
		if len(cur.Parts) == 0 {
			return
		}
		cur.Txn.ID = registry.NewTxnID()
		cur.Txn.If = conds
		cur.partOf = append(condOf, opOf...)
		out = append(out, cur)
	}
	begin := func() {
		cur, conds, condOf, opOf, bytes = Load[T]{}, slices.Clone(common), nil, nil, 0
		for _, c := range common {
			condOf = append(condOf, -1)
			bytes += c.Size()
		}
	}
	begin()
	for _, part := range parts {
		pc := shareOf(part)
		items, size := pc.size()
		full := len(conds)+len(cur.Txn.Then)+items > limits.TxnItems || bytes+size > limits.TxnBytes
		if len(cur.Parts) > 0 && (full || alone(part) || alone(cur.Parts[0])) {
			flush()
			begin()
		}
		n := len(cur.Parts)
		cur.Parts = append(cur.Parts, part)
		for _, c := range pc.Conds {
			if c.Session != "" && slices.Contains(conds, c) {
				continue
			}
			conds, condOf = append(conds, c), append(condOf, n)
			bytes += c.Size()
		}
		for _, o := range pc.Ops {
			cur.Txn.Then, opOf = append(cur.Txn.Then, o), append(opOf, n)
			bytes += o.Size()
		}
	}
	flush()
	return out
}
