package batch

import (
	"errors"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// Load is a transaction and the parts that it consists of.
type Load[T any] struct {
	Txn    registry.Txn
	Parts  []T
	partOf []int // by item of the transaction: index of its part, -1 for common conditions
}

// PartOf returns the index in Parts of the part that an item of the transaction belongs to. Items are
// numbered as in registry.ConflictError; a common condition belongs to no part.
func (l *Load[T]) PartOf(item int) (part int, ok bool) {
	if item < 0 || item >= len(l.partOf) || l.partOf[item] < 0 {
		return 0, false
	}
	return l.partOf[item], true
}

// Items are the conditions and operations of one part.
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

// Pack packs parts into transactions within limits, in order. It never splits a part. Each transaction
// has the common conditions; a condition on a session that several parts have is added once. A part for
// which alone returns true has a transaction of its own, and so has one that exceeds the limits.
func Pack[T any](common []registry.Cond, parts []T, limits registry.Limits, itemsOf func(T) Items, alone func(T) bool) []Load[T] {
	var out []Load[T]
	var conds []registry.Cond
	var condParts, opParts []int
	var cur Load[T]
	bytes := 0
	flush := func() {
		if len(cur.Parts) == 0 {
			return
		}
		cur.Txn.ID = registry.NewTxnID()
		cur.Txn.If = conds
		cur.partOf = append(condParts, opParts...)
		out = append(out, cur)
	}
	begin := func() {
		cur, conds, condParts, opParts, bytes = Load[T]{}, slices.Clone(common), nil, nil, 0
		for _, c := range common {
			condParts = append(condParts, -1)
			bytes += c.Size()
		}
	}
	begin()
	for _, part := range parts {
		items := itemsOf(part)
		count, size := items.size()
		full := len(conds)+len(cur.Txn.Then)+count > limits.TxnItems || bytes+size > limits.TxnBytes
		if len(cur.Parts) > 0 && (full || alone(part) || alone(cur.Parts[0])) {
			flush()
			begin()
		}
		n := len(cur.Parts)
		cur.Parts = append(cur.Parts, part)
		for _, c := range items.Conds {
			if c.Session != "" && slices.Contains(conds, c) {
				continue
			}
			conds, condParts = append(conds, c), append(condParts, n)
			bytes += c.Size()
		}
		for _, o := range items.Ops {
			cur.Txn.Then, opParts = append(cur.Txn.Then, o), append(opParts, n)
			bytes += o.Size()
		}
	}
	flush()
	return out
}

// FindConflict returns the conflict that err wraps, if the outcome is certain. An error that wraps
// registry.ErrUnknownOutcome may wrap the conflict of a repeated attempt too; the first attempt may
// then have been committed.
func FindConflict(err error) (*registry.ConflictError, bool) {
	var c *registry.ConflictError
	if errors.Is(err, registry.ErrUnknownOutcome) || !errors.As(err, &c) {
		return nil, false
	}
	return c, true
}
