package planning

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// reapExpired returns the reapings of expired incarnations that own nothing in any plan.
//
// The view of the plans may be older than the last claims of an incarnation: a plan that is
// delivered later may give it the shards that it claimed, and only its claims record holds those
// claims. So a claims record is deleted with a plan that absorbs it, or on condition that the job
// has no plan.
func (r *round) reapExpired(changes []Change) []Reaping {
	if len(r.expired) == 0 {
		return nil
	}
	busy := r.findBusy(changes)
	var out []Reaping
	for _, inc := range r.expired {
		if busy[inc] {
			continue
		}
		l, ok := r.freshRead(inc, registry.Rev{})
		if !ok {
			r.requestReads(inc)
			continue
		}
		if len(l.Unreadable) > 0 {
			continue // the record may hold claims that no other record has
		}
		if b, ok := r.reapIncarnation(inc, l); ok {
			out = append(out, b)
		}
	}
	return out
}

// findBusy returns the incarnations that own shards in a plan, or whose claims a change absorbs:
// which of their records are left is known in the next round.
func (r *round) findBusy(changes []Change) map[string]bool {
	busy := map[string]bool{}
	for _, p := range r.Plans { // no change gives an expired incarnation shards
		for inc := range p.Owners {
			busy[inc] = true
		}
	}
	absorbed := map[registry.SessionID]bool{}
	for _, c := range changes {
		for _, s := range c.Expired {
			absorbed[s] = true
		}
	}
	for _, inc := range r.expired {
		if absorbed[record.SessionOf(inc)] {
			busy[inc] = true
		}
	}
	return busy
}

// reapIncarnation returns the deletion of the records that a read found, and of the member record.
// It returns false if a plan cannot be read that may need one of them.
func (r *round) reapIncarnation(inc string, l FreshRead) (Reaping, bool) {
	b := Reaping{Incarnation: inc}
	for _, seg := range slices.Sorted(maps.Keys(l.Claims)) {
		if r.UnreadablePlans[seg] {
			return Reaping{}, false
		}
		b.Parts = append(b.Parts, batch.Items{
			Conds: []registry.Cond{registry.Absent(r.Keys.Plan(seg))},
			Ops:   []registry.Op{registry.Delete(r.Keys.Claims(inc, seg), l.Claims[seg].Rev)},
		})
	}
	if rev := r.Members[inc].Rev; !rev.IsZero() { // zero: another writer deleted the record
		b.Parts = append(b.Parts, batch.Items{Ops: []registry.Op{registry.Delete(r.Keys.Member(inc), rev)}})
	}
	return b, true
}
