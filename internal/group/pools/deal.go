package pools

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
)

// Demand is the demand of a live incarnation for a pool, as the leader read it last.
type Demand struct {
	record.PoolDemand
	// Since orders the incarnations that wait: a commit number, of the demand or of the last grant.
	Since uint64
}

// Input holds all that a deal depends on.
type Input struct {
	Pool    string
	Size    int
	Slots   *record.Slots     // nil: there is no record
	Demands map[string]Demand // of live incarnations
	Alive   func(incarnation string) bool
	// Undead has incarnations that count as alive although they seem not to be: the store has refused that they are dead.
	Undead map[string]bool
}

// Output is a deal.
type Output struct {
	Slots  *record.Slots // the record to write; nil: the present one, or none, stays
	Delete bool          // the record is of no use any more
	Dead   []string      // incarnations whose slots the deal frees: it holds only if their sessions have ended
	Raised []string      // incarnations that get more slots
	// Doubtful has live incarnations that may use slots which the record does not show. Nothing is granted before they have
	// announced how many.
	Doubtful []string
}

// holder is an incarnation in a deal.
type holder struct {
	incarnation string
	record.Grant
	held    int // slots that it may use
	want    int
	since   uint64
	target  int // its fair part
	granted int // held, and what this deal adds
}

func (h *holder) waits() bool { return h.want > h.granted }

// Deal decides how the slots of a pool are dealt. Incarnations that have none go first, in the order in which they began to wait. If there are more of
// them than slots, each holder is asked to return its slots after a turn. Otherwise the slots are dealt evenly, and stay where they are as long as nobody waits.
func Deal(in Input) Output {
	var out Output
	holders, free := in.findHolders(&out)
	if len(out.Doubtful) > 0 {
		return Output{Doubtful: out.Doubtful}
	}
	turns := setTargets(holders, in.Size)
	raise(holders, free)
	if turns {
		for _, h := range holders {
			h.target = 0
		}
	}
	next := in.compose(holders, &out)
	switch {
	case len(next.Grants) == 0 && in.Size == 0:
		return Output{Delete: in.Slots != nil, Dead: out.Dead}
	case in.Slots == nil && len(next.Grants) == 0, in.Slots != nil && in.isSame(next):
		return Output{}
	}
	out.Slots = next
	return out
}

// Held returns how many slots an incarnation may use by a grant and its announcement, or reports that this is not known.
func Held(g record.Grant, d record.PoolDemand) (slots int, known bool) {
	switch {
	case g.Deal == 0 && d.Deal == 0: // it knows of no grant either, and only ends its runs
		return d.Cap, true
	case g.Deal == 0: // it has not observed that its grant is gone
		return 0, d.Cap == 0
	case g.Deal == d.Deal:
		return min(g.Slots, d.Cap), true
	}
	return g.Slots, true
}

// findHolders returns the incarnations that use or want slots, in an order that depends on nothing else, and how many slots are free.
func (in *Input) findHolders(out *Output) (holders []*holder, free int) {
	names := map[string]bool{}
	for inc := range in.Demands {
		names[inc] = true
	}
	if in.Slots != nil {
		for inc := range in.Slots.Grants {
			names[inc] = true
		}
	}
	free = in.Size
	for _, inc := range slices.Sorted(maps.Keys(names)) {
		d := in.Demands[inc]
		h := &holder{incarnation: inc, want: min(d.Want, record.MaxPoolSize), since: d.Since}
		if in.Slots != nil {
			h.Grant = in.Slots.Grants[inc]
		}
		if !in.Alive(inc) && !in.Undead[inc] {
			if h.Deal > 0 {
				out.Dead = append(out.Dead, inc)
			}
			continue
		}
		held, known := Held(h.Grant, d.PoolDemand)
		if !known {
			out.Doubtful = append(out.Doubtful, inc)
		}
		h.held, h.granted = held, held
		free -= held
		holders = append(holders, h)
	}
	return holders, free
}

// setTargets determines the fair parts, of which the sum is at most size. It reports whether there are more incarnations than slots. Then
// they take turns: the parts are those of incarnations without a slot, and each holder is to return its own.
func setTargets(holders []*holder, size int) (turns bool) {
	var wanting []*holder
	for _, h := range holders {
		if h.want > 0 {
			wanting = append(wanting, h)
		}
	}
	if turns = len(wanting) > size; turns {
		wanting = slices.DeleteFunc(wanting, func(h *holder) bool { return h.held > 0 })
		size = min(size, len(wanting))
	}
	for level := 0; size > 0 && len(wanting) > 0; level++ {
		slices.SortStableFunc(wanting, func(a, b *holder) int { // a holder keeps its slot of this level
			return cmp.Or(cmp.Compare(min(b.held/(level+1), 1), min(a.held/(level+1), 1)), cmp.Compare(a.since, b.since))
		})
		for _, h := range wanting[:min(size, len(wanting))] {
			h.target++
			size--
		}
		wanting = slices.DeleteFunc(wanting, func(h *holder) bool { return h.target >= h.want })
	}
	return turns
}

// raise grants free slots, first to those that have waited longest.
func raise(holders []*holder, free int) {
	waiting := slices.Clone(holders)
	slices.SortStableFunc(waiting, func(a, b *holder) int { return cmp.Compare(a.since, b.since) })
	for _, h := range waiting {
		if add := min(h.target-h.held, free); add > 0 {
			h.granted += add
			free -= add
		}
	}
}

// compose returns the next record.
func (in *Input) compose(holders []*holder, out *Output) *record.Slots {
	next := &record.Slots{Pool: in.Pool, Grants: map[string]record.Grant{}}
	if in.Slots != nil {
		next.Deal = in.Slots.Deal
	}
	held := 0
	for _, h := range holders {
		next.Deal = max(next.Deal, in.Demands[h.incarnation].Deal)
		next.Contended = next.Contended || h.waits()
		held += h.granted
	}
	number := next.Deal + 1
	for _, h := range holders {
		g := record.Grant{Slots: h.granted, Deal: h.Deal, Keep: h.granted}
		if h.granted > h.held || h.Deal == 0 {
			g.Deal = number
		}
		if h.granted > h.held {
			out.Raised = append(out.Raised, h.incarnation)
		}
		if h.target < h.granted && (next.Contended || held > in.Size) {
			g.Keep = h.target
		}
		if g.Slots > 0 {
			next.Grants[h.incarnation] = g
			next.Deal = max(next.Deal, g.Deal)
		}
	}
	return next
}

// isSame reports whether a record says nothing that the present one does not say. Slots that were returned, or whose holders are
// gone, need no write before another incarnation gets them.
func (in *Input) isSame(next *record.Slots) bool {
	if next.Contended != in.Slots.Contended {
		return false
	}
	for inc, g := range next.Grants {
		was := in.Slots.Grants[inc]
		if g.Deal != was.Deal || g.Keep != min(was.Keep, g.Slots) {
			return false
		}
	}
	return true
}
