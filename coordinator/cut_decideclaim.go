package coordinator

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// claiming is what an incarnation knows when it looks at one of its jobs.
type claiming struct {
	me       string
	plan     *record.Plan
	programs map[int]Program // by generation
	claims   record.Claims   // as last committed
	ended    []ended         // runs that have ended since
	barred   shardset.Set    // shards that may not start: an old function has not returned
	now      record.Instant
	open     bool          // new runs may be claimed
	skew     time.Duration // how far clocks may be apart; 0: nobody compares them
	reported record.Ahead  // what shards wait for, as it was published last
}

// ended is a run whose function has returned.
type ended struct {
	shard      int
	err        error
	handedBack bool // the run is to be made again as another attempt
}

// claimed is what an incarnation writes, and then does.
type claimed struct {
	claims  record.Claims
	starts  record.Runs    // to be started once the claims are committed
	planned bool           // it rests on the plan
	changed bool           // there is something to write
	wake    record.Instant // when to look again if nothing happens; zero: never
	ahead   record.Ahead   // what shards wait for that is ahead of this clock
}

// claim decides what to write about a job: a pure function. A pending re-run comes
// before any other run of its shard, then triggers, then the schedule. Disabled shards run
// nothing.
func (in *claiming) claim() claimed {
	out := claimed{claims: in.claims}
	in.close(&out)
	if in.plan == nil {
		return out
	}
	out.ahead = in.ahead()
	if !in.open || in.plan.Paused {
		return out
	}
	if out.ahead.Gen != 0 {
		out.wakeBy(out.ahead.At.Add(-reach * in.skew)) // it is no longer ahead then
	}
	mine := in.plan.Owners[in.me]
	free := mine.Minus(in.plan.Frozen).Minus(in.barred)
	for i := range out.claims.Running {
		free = free.Minus(out.claims.Running[i].Shards)
	}
	if free.IsZero() {
		return out
	}
	marks := in.claims.Marks.Fold(in.plan.Marks, free)
	if in.givesUp() {
		marks = in.giveUp(&out, marks, free)
	}
	for _, part := range marks.Split(free) {
		disabled := part.Shards.Intersect(in.plan.Disabled)
		in.part(&out, part.Shards.Minus(disabled), part.Mark)
		in.pass(&out, disabled, part.Mark)
	}
	if out.planned {
		// The plan that the claim names as a condition says what is mine, so what is said
		// of other shards here has been folded into it and can go.
		out.claims.Marks = out.claims.Marks.Within(mine)
		out.claims.Reruns = unserved(out.claims.Reruns.Within(mine), out.claims.Marks)
	}
	return out
}

// close takes ended runs off the record.
func (in *claiming) close(out *claimed) {
	if len(in.ended) == 0 {
		return
	}
	var done, failed, returned shardset.Set
	for _, e := range in.ended {
		done.Add(e.shard)
		switch {
		case e.handedBack:
			returned.Add(e.shard)
		case e.err != nil:
			failed.Add(e.shard)
		}
	}
	for _, g := range in.claims.Running {
		if part := g.Shards.Intersect(returned); !part.IsZero() {
			out.claims.Reruns = out.claims.Reruns.With(part, g.Return())
		}
		if g.Shards = g.Shards.Intersect(failed); g.Shards.IsZero() {
			continue
		}
		first := slices.IndexFunc(in.ended, func(e ended) bool { return g.Shards.Has(e.shard) })
		out.claims.Failures = out.claims.Failures.With(record.Failure{RunGroup: g, At: in.now, Error: in.ended[first].err.Error()})
	}
	out.claims.Running = out.claims.Running.Without(done)
	out.claims.Counts.Succeeded += uint64(done.Len() - failed.Len() - returned.Len())
	out.claims.Counts.Failed += uint64(failed.Len())
	out.claims.Ended = in.now
	out.changed = true
}

// part decides for free shards that share a mark.
func (in *claiming) part(out *claimed, shards shardset.Set, m record.Mark) {
	for _, g := range out.reruns(in.plan) {
		if sub := shards.Intersect(g.Shards); !sub.IsZero() && !m.Covers(g.Ref) {
			in.start(out, sub, g.Ref, m)
			shards = shards.Minus(sub)
		}
	}
	for _, t := range in.plan.Triggers {
		if t.Number <= m.Trigger || shards.IsZero() {
			continue
		}
		e, ok := in.plan.Epoch(t.Gen)
		if !ok {
			continue
		}
		if sub := shards.Intersect(targets(t, e)); !sub.IsZero() {
			in.start(out, sub, record.Ref{Gen: t.Gen, Fire: t.At, Trigger: t.Number, Attempt: 1}, m)
			shards = shards.Minus(sub)
		}
	}
	in.schedule(out, shards, m, false)
}

// pass decides for free shards that share a mark and are disabled: fires that fall due are
// passed over as they come, and counted. Triggers and re-runs wait. A mark beyond the fire
// of a re-run would say that it was claimed, so fires wait behind it.
func (in *claiming) pass(out *claimed, shards shardset.Set, m record.Mark) {
	for _, g := range out.reruns(in.plan) {
		if g.Trigger == 0 && !m.Covers(g.Ref) {
			shards = shards.Minus(g.Shards)
		}
	}
	in.schedule(out, shards, m, true)
}

// reruns returns the pending re-runs: those of the plan, and those that this incarnation
// handed back itself, just now or earlier. A watermark covers the ones that have been claimed.
func (out *claimed) reruns(plan *record.Plan) record.Runs {
	if len(out.claims.Reruns) == 0 {
		return plan.Reruns
	}
	return slices.Concat(plan.Reruns, out.claims.Reruns)
}

// givesUp reports that pending re-runs are not made any more: they come from a definition that
// wanted them, and the newest counts what a crash ends.
func (in *claiming) givesUp() bool {
	job := in.plan.Last().Job()
	return job.OnCrash == record.CrashFail && tracksRuns(job)
}

// giveUp counts the pending re-runs of free shards as lost, and returns the marks that these
// have then: as if the re-runs had been claimed, so that they are made nowhere else.
func (in *claiming) giveUp(out *claimed, marks record.Marks, free shardset.Set) record.Marks {
	for _, g := range out.reruns(in.plan) {
		for _, part := range marks.Split(free.Intersect(g.Shards)) {
			if part.Covers(g.Ref) {
				continue
			}
			m := part.Max(g.Mark())
			marks = marks.Raise(part.Shards, m)
			out.raise(part.Shards, m)
			out.claims.Counts.Lost += uint64(part.Shards.Len())
			ended := g.Ref
			ended.Attempt-- // the one that a crash ended
			out.claims.Failures = out.claims.Failures.With(record.Failure{
				RunGroup: record.RunGroup{Shards: part.Shards, Ref: ended}, At: in.now, Error: crashed,
			})
		}
	}
	return marks
}

// crashed is the error of a run whose session ended.
const crashed = "the session ended in which it ran"

// schedule decides for free shards that share a mark by the schedules of all epochs.
func (in *claiming) schedule(out *claimed, shards shardset.Set, m record.Mark, disabled bool) {
	for i := range in.plan.Epochs {
		e := &in.plan.Epochs[i]
		sub := shards.Intersect(shardset.Range(0, e.Job().Shards))
		if sub.IsZero() {
			continue
		}
		if in.scheduled(out, e, sub, m, disabled) {
			shards = shards.Minus(sub)
		}
	}
}

// scheduled decides for free shards by one epoch's schedule. It reports whether later
// epochs have to wait for it.
func (in *claiming) scheduled(out *claimed, e *record.Epoch, shards shardset.Set, m record.Mark, disabled bool) bool {
	prog, ok := in.programs[e.Gen]
	if !ok {
		return true // its definition does not compile here; others may know better
	}
	owed, ok := owedOf(e, prog, m, in.now, disabled)
	if !ok {
		return false
	}
	out.claims.Counts.Skipped += uint64(owed.Skipped * shards.Len())
	if !owed.Fire.IsZero() {
		in.start(out, shards, record.Ref{Gen: e.Gen, Fire: record.InstantOf(owed.Fire), Attempt: 1, Missed: owed.Missed}, m)
		return true
	}
	if !owed.Through.IsZero() {
		out.raise(shards, m.Max(record.Mark{Gen: e.Gen, Fire: record.InstantOf(owed.Through)}))
	}
	if owed.Wake.IsZero() {
		return false
	}
	out.wakeBy(record.InstantOf(owed.Wake))
	return true
}

// wakeBy has the next look happen at an instant at the latest.
func (out *claimed) wakeBy(at record.Instant) {
	if out.wake == 0 || at < out.wake {
		out.wake = at
	}
}

// start puts runs of shards with mark m on the record. A definition that does not compile
// here may be known to others, so its runs are left to them, and come first all the same.
func (in *claiming) start(out *claimed, shards shardset.Set, r record.Ref, m record.Mark) {
	if _, ok := in.programs[r.Gen]; !ok {
		return
	}
	out.raise(shards, m.Max(r.Mark()))
	out.claims.Running = out.claims.Running.With(shards, r)
	out.claims.Counts.Claimed += uint64(shards.Len())
	out.starts = out.starts.With(shards, r)
}

func (out *claimed) raise(shards shardset.Set, m record.Mark) {
	out.claims.Marks = out.claims.Marks.Raise(shards, m)
	out.planned, out.changed = true, true
}
