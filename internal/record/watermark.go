package record

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/shardset"
)

// Watermark is the watermark of a shard: the last claimed fire and attempt, and the last claimed
// trigger and attempt. The two coordinates, (epoch number, fire, attempt) and (trigger, attempt),
// grow independently.
type Watermark struct {
	Epoch          int     `json:"epoch,omitempty"`
	Fire           Instant `json:"fire,omitzero"`
	Attempt        int     `json:"attempt,omitempty"`
	Trigger        uint64  `json:"trigger,omitempty"`
	TriggerAttempt int     `json:"trigger_attempt,omitempty"`
}

// Max returns the maximum of both marks in each coordinate.
func (m Watermark) Max(o Watermark) Watermark {
	if m.compareFire(o) < 0 {
		m.Epoch, m.Fire, m.Attempt = o.Epoch, o.Fire, o.Attempt
	}
	if m.compareTrigger(o) < 0 {
		m.Trigger, m.TriggerAttempt = o.Trigger, o.TriggerAttempt
	}
	return m
}

func (m Watermark) compareFire(o Watermark) int {
	return cmp.Or(cmp.Compare(m.Epoch, o.Epoch), cmp.Compare(m.Fire, o.Fire), cmp.Compare(m.Attempt, o.Attempt))
}

func (m Watermark) compareTrigger(o Watermark) int {
	return cmp.Or(cmp.Compare(m.Trigger, o.Trigger), cmp.Compare(m.TriggerAttempt, o.TriggerAttempt))
}

// compare orders marks, so that all writers encode the same marks alike.
func (m Watermark) compare(o Watermark) int { return cmp.Or(m.compareFire(o), m.compareTrigger(o)) }

// Covers reports whether m records that r has been claimed.
func (m Watermark) Covers(r Ref) bool {
	if r.Trigger > 0 {
		return m.compareTrigger(r.Watermark()) >= 0
	}
	return m.compareFire(r.Watermark()) >= 0
}

// Ref identifies a run of a shard, for a fire or for a trigger.
type Ref struct {
	Epoch   int     `json:"epoch"`             // the number of the epoch whose definition applies
	Fire    Instant `json:"fire"`              // the scheduled instant, or the instant of the trigger
	Trigger uint64  `json:"trigger,omitempty"` // the number of the trigger; zero for a scheduled fire
	Attempt int     `json:"attempt"`           // from 1
	Missed  bool    `json:"missed,omitempty"`  // claimed late by the misfire policy
	// HandedBack is how many earlier attempts were handed back. They do not count towards the
	// job's maximum of attempts.
	HandedBack int `json:"handed_back,omitempty"`
	// Retries is how many earlier attempts failed and were followed by another, as the job's
	// definition wants it. They do not count towards the job's maximum of attempts either.
	Retries int `json:"retries,omitempty"`
	// NotBefore is when the attempt may begin if the attempt before it failed, and RetryDelay how
	// long it waits from that failure on. Both are zero for all other attempts.
	NotBefore  Instant  `json:"not_before,omitzero"`
	RetryDelay Duration `json:"retry_delay,omitzero"`
}

// AfterCrash returns the next attempt after a crash ended r.
func (r Ref) AfterCrash() Ref {
	r.Attempt++
	r.NotBefore, r.RetryDelay = 0, 0
	return r
}

// Return returns the next attempt after the owner handed r back.
func (r Ref) Return() Ref {
	r = r.AfterCrash()
	r.HandedBack++
	return r
}

// RetryAt returns the next attempt after r failed, which begins no earlier than at.
func (r Ref) RetryAt(at Instant, delay time.Duration) Ref {
	r = r.AfterCrash()
	r.Retries++
	r.NotBefore, r.RetryDelay = at, Duration(delay)
	return r
}

// Before returns the attempt before r. It is exact for a retry; otherwise the attempt may have been handed back.
func (r Ref) Before() Ref {
	if r.Attempt--; r.IsRetry() {
		r.Retries--
		r.NotBefore, r.RetryDelay = 0, 0
	}
	return r
}

// IsRetry reports whether the attempt before r failed.
func (r Ref) IsRetry() bool { return r.NotBefore != 0 }

// CrashAttempts returns the number of attempts that count towards the job's maximum of attempts.
func (r Ref) CrashAttempts() int { return r.Attempt - r.HandedBack - r.Retries }

// Watermark returns the mark of a claim of r.
func (r Ref) Watermark() Watermark {
	if r.Trigger > 0 {
		return Watermark{Trigger: r.Trigger, TriggerAttempt: r.Attempt}
	}
	return Watermark{Epoch: r.Epoch, Fire: r.Fire, Attempt: r.Attempt}
}

// compare orders refs.
func (r Ref) compare(o Ref) int {
	missed := 0
	if r.Missed != o.Missed {
		missed = -1
		if r.Missed {
			missed = 1
		}
	}
	return cmp.Or(cmp.Compare(r.Epoch, o.Epoch), cmp.Compare(r.Fire, o.Fire),
		cmp.Compare(r.Trigger, o.Trigger), cmp.Compare(r.Attempt, o.Attempt), missed,
		cmp.Compare(r.HandedBack, o.HandedBack), cmp.Compare(r.Retries, o.Retries), cmp.Compare(r.NotBefore, o.NotBefore), cmp.Compare(r.RetryDelay, o.RetryDelay))
}

// WatermarkGroup is a set of shards with the same mark.
type WatermarkGroup struct {
	Shards shardset.Set `json:"shards"`
	Watermark
}

// RunGroup is a set of shards with the same Ref.
type RunGroup struct {
	Shards shardset.Set `json:"shards"`
	Ref
}

// Watermarks are the marks of shards. A shard belongs to at most one group; a shard without a group
// has the zero Mark.
type Watermarks []WatermarkGroup

// Of returns the mark of shard s.
func (ms Watermarks) Of(s int) Watermark {
	for i := range ms {
		if ms[i].Shards.Has(s) {
			return ms[i].Watermark
		}
	}
	return Watermark{}
}

// Split divides shards into groups by mark. The group with the zero Mark is last.
func (ms Watermarks) Split(shards shardset.Set) Watermarks {
	var out Watermarks
	for i := range ms {
		if part := shards.Intersect(ms[i].Shards); !part.IsZero() {
			out = append(out, WatermarkGroup{part, ms[i].Watermark})
			if shards = shards.Minus(part); shards.IsZero() {
				return out
			}
		}
	}
	if !shards.IsZero() {
		out = append(out, WatermarkGroup{Shards: shards})
	}
	return out
}

// LastTrigger returns the greatest trigger in the marks of shards.
func (ms Watermarks) LastTrigger(shards shardset.Set) (last uint64) {
	for _, g := range ms.Split(shards) {
		last = max(last, g.Trigger)
	}
	return last
}

// Raise returns marks with those of shards raised to at least m. The receiver is unchanged.
func (ms Watermarks) Raise(shards shardset.Set, m Watermark) Watermarks {
	out := ms.Without(shards)
	for _, part := range ms.Split(shards) {
		out = out.add(part.Shards, part.Watermark.Max(m))
	}
	return out.sorted()
}

// Fold returns marks with those of shards raised to at least the marks in others.
func (ms Watermarks) Fold(others Watermarks, shards shardset.Set) Watermarks {
	if len(ms)*len(others) > maxFoldedPairs {
		return ms.foldByShard(others, shards)
	}
	for _, g := range others {
		if part := g.Shards.Intersect(shards); !part.IsZero() && !ms.reach(part, g.Watermark) {
			ms = ms.Raise(part, g.Watermark)
		}
	}
	return ms
}

// maxFoldedPairs is how many pairs of groups Fold compares. It costs less than foldByShard for few groups, and its
// cost grows with the cube of their number: 10,000 shards with a mark each took 18 s.
const maxFoldedPairs = 256

// foldByShard is Fold at a cost that grows with the number of shards.
func (ms Watermarks) foldByShard(others Watermarks, shards shardset.Set) Watermarks {
	var of [MaxShards]Watermark
	for _, g := range slices.Backward(ms) { // the first group of a shard counts
		for s := range g.Shards.Intersect(shardset.Range(0, MaxShards)).All() {
			of[s] = g.Watermark
		}
	}
	changed := false
	for _, g := range others {
		for s := range g.Shards.Intersect(shards).Intersect(shardset.Range(0, MaxShards)).All() {
			if m := of[s].Max(g.Watermark); m != of[s] {
				of[s], changed = m, true
			}
		}
	}
	if !changed {
		return ms
	}
	groups := map[Watermark]*shardset.Set{}
	for s, m := range of {
		if m == (Watermark{}) {
			continue
		}
		if groups[m] == nil {
			groups[m] = &shardset.Set{}
		}
		groups[m].Add(s)
	}
	out := make(Watermarks, 0, len(groups))
	for m, set := range groups {
		out = append(out, WatermarkGroup{*set, m})
	}
	return out.sorted()
}

// reach reports whether the marks of all shards are at least m.
func (ms Watermarks) reach(shards shardset.Set, m Watermark) bool {
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
func (ms Watermarks) Without(shards shardset.Set) Watermarks {
	out := make(Watermarks, 0, len(ms)+1)
	for _, g := range ms {
		if rest := g.Shards.Minus(shards); !rest.IsZero() {
			out = append(out, WatermarkGroup{rest, g.Watermark})
		}
	}
	return out
}

// Within returns the marks of shards only. The receiver is unchanged.
func (ms Watermarks) Within(shards shardset.Set) Watermarks {
	out := make(Watermarks, 0, len(ms))
	for _, g := range ms {
		if part := g.Shards.Intersect(shards); !part.IsZero() {
			out = append(out, WatermarkGroup{part, g.Watermark})
		}
	}
	return out
}

func (ms Watermarks) add(shards shardset.Set, m Watermark) Watermarks {
	if m == (Watermark{}) {
		return ms
	}
	for i := range ms {
		if ms[i].Watermark == m {
			ms[i].Shards = ms[i].Shards.Union(shards)
			return ms
		}
	}
	return append(ms, WatermarkGroup{shards, m})
}

func (ms Watermarks) sorted() Watermarks {
	slices.SortFunc(ms, func(a, b WatermarkGroup) int { return a.Watermark.compare(b.Watermark) })
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
	slices.SortFunc(out, func(a, b RunGroup) int { return a.Ref.compare(b.Ref) })
	return out
}

// Merge returns runs with those of others in place of the runs of their shards. The receiver is unchanged.
func (rs Runs) Merge(others Runs) Runs {
	if len(rs)*len(others)+len(others)*len(others) <= maxFoldedPairs {
		for _, g := range others {
			rs = rs.With(g.Shards, g.Ref)
		}
		return rs
	}
	of := map[int]Ref{} // at a cost that grows with the number of shards, as foldByShard
	for _, g := range slices.Concat(rs, others) {
		for s := range g.Shards.Intersect(shardset.Range(0, MaxShards)).All() {
			of[s] = g.Ref
		}
	}
	groups := map[Ref]*shardset.Set{}
	for _, s := range slices.Sorted(maps.Keys(of)) {
		if groups[of[s]] == nil {
			groups[of[s]] = &shardset.Set{}
		}
		groups[of[s]].Add(s)
	}
	out := make(Runs, 0, len(groups))
	for r, set := range groups {
		out = append(out, RunGroup{*set, r})
	}
	slices.SortFunc(out, func(a, b RunGroup) int { return a.Ref.compare(b.Ref) })
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
