package batch

import (
	"errors"
	"iter"
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
	items = len(p.Conds)
	for _, c := range p.Conds {
		bytes += c.Size()
	}
	for _, o := range p.Ops {
		items += o.Items()
		bytes += o.Size()
	}
	return items, bytes
}

// Packer packs parts into one transaction within limits.
type Packer[T any] struct {
	limits            registry.Limits
	load              Load[T]
	condParts, opPart []int
	items, bytes      int
}

// NewPacker returns a packer of a transaction with the common conditions.
func NewPacker[T any](common []registry.Cond, limits registry.Limits) *Packer[T] {
	p := &Packer[T]{limits: limits}
	for _, c := range common {
		p.addCond(c, -1)
	}
	return p
}

// Add adds a part, unless it would exceed the limits. The first part is added in any case. A
// condition on a session that several parts have is added once.
func (p *Packer[T]) Add(part T, items Items) bool {
	count, size := items.size()
	if len(p.load.Parts) > 0 && (p.items+count > p.limits.TxnItems || p.bytes+size > p.limits.TxnBytes) {
		return false
	}
	n := len(p.load.Parts)
	p.load.Parts = append(p.load.Parts, part)
	for _, c := range items.Conds {
		if c.Session == "" || !slices.Contains(p.load.Txn.If, c) {
			p.addCond(c, n)
		}
	}
	for _, o := range items.Ops {
		p.load.Txn.Then, p.opPart = append(p.load.Txn.Then, o), append(p.opPart, n)
		p.items += o.Items()
		p.bytes += o.Size()
	}
	return true
}

func (p *Packer[T]) addCond(c registry.Cond, part int) {
	p.load.Txn.If, p.condParts = append(p.load.Txn.If, c), append(p.condParts, part)
	p.items++
	p.bytes += c.Size()
}

// Finish returns the transaction, nil if it has no parts.
func (p *Packer[T]) Finish() *Load[T] {
	if len(p.load.Parts) == 0 {
		return nil
	}
	p.load.Txn.ID = registry.NewTxnID()
	p.load.partOf = append(p.condParts, p.opPart...)
	return &p.load
}

// Pack packs parts into transactions within limits, in order. It never splits a part. Each transaction
// has the common conditions. A part for which alone returns true has a transaction of its own, and so
// has one that exceeds the limits.
func Pack[T any](common []registry.Cond, parts []T, limits registry.Limits, itemsOf func(T) Items, alone func(T) bool) []Load[T] {
	return slices.Collect(PackLazily(common, func(yield func(T, Items) bool) {
		for _, part := range parts {
			if !yield(part, itemsOf(part)) {
				return
			}
		}
	}, limits, alone))
}

// PackLazily packs parts as Pack does. It asks for a part when it needs it, so that a transaction can be
// sent before the later ones are made.
func PackLazily[T any](common []registry.Cond, parts iter.Seq2[T, Items], limits registry.Limits, alone func(T) bool) iter.Seq[Load[T]] {
	return func(yield func(Load[T]) bool) {
		cur := NewPacker[T](common, limits)
		flush := func() (more bool) {
			load := cur.Finish()
			cur = NewPacker[T](common, limits)
			return load == nil || yield(*load)
		}
		for part, items := range parts {
			if alone(part) || len(cur.load.Parts) > 0 && alone(cur.load.Parts[0]) || !cur.Add(part, items) {
				if !flush() {
					return
				}
				cur.Add(part, items)
			}
		}
		flush()
	}
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
