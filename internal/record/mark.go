package record

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Mark is the watermark of a shard: the last claimed fire and attempt, and the last claimed
// trigger and attempt. The two coordinates, (epoch number, fire, attempt) and (trigger, attempt),
// grow independently.
type Mark struct {
	Gen            int     `json:"gen,omitempty"`
	Fire           Instant `json:"fire,omitzero"`
	Attempt        int     `json:"attempt,omitempty"`
	Trigger        uint64  `json:"trigger,omitempty"`
	TriggerAttempt int     `json:"trigger_attempt,omitempty"`
}

// Max returns the maximum of both marks in each coordinate.
func (m Mark) Max(o Mark) Mark {
	if m.compareFire(o) < 0 {
		m.Gen, m.Fire, m.Attempt = o.Gen, o.Fire, o.Attempt
	}
	if m.compareTrigger(o) < 0 {
		m.Trigger, m.TriggerAttempt = o.Trigger, o.TriggerAttempt
	}
	return m
}

func (m Mark) compareFire(o Mark) int {
	return cmp.Or(cmp.Compare(m.Gen, o.Gen), cmp.Compare(m.Fire, o.Fire), cmp.Compare(m.Attempt, o.Attempt))
}

func (m Mark) compareTrigger(o Mark) int {
	return cmp.Or(cmp.Compare(m.Trigger, o.Trigger), cmp.Compare(m.TriggerAttempt, o.TriggerAttempt))
}

// Compare orders marks, so that all writers encode the same marks alike.
func (m Mark) Compare(o Mark) int { return cmp.Or(m.compareFire(o), m.compareTrigger(o)) }

// Covers reports whether m records that r has been claimed.
func (m Mark) Covers(r Ref) bool {
	if r.Trigger > 0 {
		return m.compareTrigger(r.Mark()) >= 0
	}
	return m.compareFire(r.Mark()) >= 0
}

// Ref identifies a run of a shard, for a fire or for a trigger.
type Ref struct {
	Gen     int     `json:"gen"`               // the number of the epoch whose definition applies
	Fire    Instant `json:"fire"`              // the scheduled instant, or the instant of the trigger
	Trigger uint64  `json:"trigger,omitempty"` // the number of the trigger; zero for a scheduled fire
	Attempt int     `json:"attempt"`           // from 1
	Missed  bool    `json:"missed,omitempty"`  // claimed late by the misfire policy
	// HandedBack is how many earlier attempts were handed back. They do not count towards the
	// job's maximum of attempts.
	HandedBack int `json:"handed_back,omitempty"`
}

// Retry returns the next attempt after a crash ended r.
func (r Ref) Retry() Ref {
	r.Attempt++
	return r
}

// Return returns the next attempt after the owner handed r back.
func (r Ref) Return() Ref {
	r.Attempt++
	r.HandedBack++
	return r
}

// Mark returns the mark of a claim of r.
func (r Ref) Mark() Mark {
	if r.Trigger > 0 {
		return Mark{Trigger: r.Trigger, TriggerAttempt: r.Attempt}
	}
	return Mark{Gen: r.Gen, Fire: r.Fire, Attempt: r.Attempt}
}

// Compare orders refs.
func (r Ref) Compare(o Ref) int {
	missed := 0
	if r.Missed != o.Missed {
		missed = -1
		if r.Missed {
			missed = 1
		}
	}
	return cmp.Or(cmp.Compare(r.Gen, o.Gen), cmp.Compare(r.Fire, o.Fire),
		cmp.Compare(r.Trigger, o.Trigger), cmp.Compare(r.Attempt, o.Attempt), missed, cmp.Compare(r.HandedBack, o.HandedBack))
}

// MarkGroup is a set of shards with the same mark.
type MarkGroup struct {
	Shards shardset.Set `json:"shards"`
	Mark
}

// RunGroup is a set of shards with the same Ref.
type RunGroup struct {
	Shards shardset.Set `json:"shards"`
	Ref
}

// Marks are the marks of shards. A shard belongs to at most one group; a shard without a group
// has the zero Mark.
type Marks []MarkGroup

// Of returns the mark of shard s.
func (ms Marks) Of(s int) Mark {
	for i := range ms {
		if ms[i].Shards.Has(s) {
			return ms[i].Mark
		}
	}
	return Mark{}
}

// Split divides shards into groups by mark. The group with the zero Mark is last.
func (ms Marks) Split(shards shardset.Set) Marks {
	var out Marks
	for i := range ms {
		if part := shards.Intersect(ms[i].Shards); !part.IsZero() {
			out = append(out, MarkGroup{part, ms[i].Mark})
			if shards = shards.Minus(part); shards.IsZero() {
				return out
			}
		}
	}
	if !shards.IsZero() {
		out = append(out, MarkGroup{Shards: shards})
	}
	return out
}

// Raise returns marks with those of shards raised to at least m. The receiver is unchanged.
func (ms Marks) Raise(shards shardset.Set, m Mark) Marks {
	out := ms.Without(shards)
	for _, part := range ms.Split(shards) {
		out = out.add(part.Shards, part.Mark.Max(m))
	}
	return out.sorted()
}

// Fold returns marks with those of shards raised to at least the marks in others.
func (ms Marks) Fold(others Marks, shards shardset.Set) Marks {
	for _, g := range others {
		if part := g.Shards.Intersect(shards); !part.IsZero() && !ms.reach(part, g.Mark) {
			ms = ms.Raise(part, g.Mark)
		}
	}
	return ms
}

// reach reports whether the marks of all shards are at least m.
func (ms Marks) reach(shards shardset.Set, m Mark) bool {
	for i := range ms {
		if ms[i].compareFire(m) < 0 || ms[i].compareTrigger(m) < 0 {
			continue
		}
		if shards = shards.Minus(ms[i].Shards); shards.IsZero() {
			return true
		}
	}
	return false
}

// Without returns marks without those of shards. The receiver is unchanged.
func (ms Marks) Without(shards shardset.Set) Marks {
	out := make(Marks, 0, len(ms)+1)
	for _, g := range ms {
		if rest := g.Shards.Minus(shards); !rest.IsZero() {
			out = append(out, MarkGroup{rest, g.Mark})
		}
	}
	return out
}

// Within returns the marks of shards only. The receiver is unchanged.
func (ms Marks) Within(shards shardset.Set) Marks {
	out := make(Marks, 0, len(ms))
	for _, g := range ms {
		if part := g.Shards.Intersect(shards); !part.IsZero() {
			out = append(out, MarkGroup{part, g.Mark})
		}
	}
	return out
}

func (ms Marks) add(shards shardset.Set, m Mark) Marks {
	if m == (Mark{}) {
		return ms
	}
	for i := range ms {
		if ms[i].Mark == m {
			ms[i].Shards = ms[i].Shards.Union(shards)
			return ms
		}
	}
	return append(ms, MarkGroup{shards, m})
}

func (ms Marks) sorted() Marks {
	slices.SortFunc(ms, func(a, b MarkGroup) int { return a.Mark.Compare(b.Mark) })
	return ms
}

// Runs are the runs of shards, at most one for each.
type Runs []RunGroup

// Of returns the run of shard s.
func (rs Runs) Of(s int) (Ref, bool) {
	for i := range rs {
		if rs[i].Shards.Has(s) {
			return rs[i].Ref, true
		}
	}
	return Ref{}, false
}

// Shards returns the shards that have a run.
func (rs Runs) Shards() shardset.Set {
	var all shardset.Set
	for i := range rs {
		all = all.Union(rs[i].Shards)
	}
	return all
}

// With returns runs with r as the run of each of shards. The receiver is unchanged.
func (rs Runs) With(shards shardset.Set, r Ref) Runs {
	out := rs.Without(shards)
	for i := range out {
		if out[i].Ref == r {
			out[i].Shards = out[i].Shards.Union(shards)
			return out
		}
	}
	out = append(out, RunGroup{shards, r})
	slices.SortFunc(out, func(a, b RunGroup) int { return a.Ref.Compare(b.Ref) })
	return out
}

// Within returns the runs of shards only. The receiver is unchanged.
func (rs Runs) Within(shards shardset.Set) Runs {
	out := make(Runs, 0, len(rs))
	for _, g := range rs {
		if part := g.Shards.Intersect(shards); !part.IsZero() {
			out = append(out, RunGroup{part, g.Ref})
		}
	}
	return out
}

// Without returns runs without those of shards. The receiver is unchanged.
func (rs Runs) Without(shards shardset.Set) Runs {
	out := make(Runs, 0, len(rs)+1)
	for _, g := range rs {
		if rest := g.Shards.Minus(shards); !rest.IsZero() {
			out = append(out, RunGroup{rest, g.Ref})
		}
	}
	return out
}
