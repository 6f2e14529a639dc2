package claiming

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Input is what an incarnation knows when it looks at one of its jobs.
type Input struct {
	Me            string
	Plan          *record.Plan
	Programs      map[int]due.Program // by generation
	Claims        record.Claims       // as last committed
	Ended         []EndedRun          // runs that have ended since
	Blocked       shardset.Set        // shards that may not start: an old function has not returned
	Now           record.Instant
	MayClaim      bool          // new runs may be claimed
	AllowedSkew   time.Duration // how far clocks may be apart; 0: nobody compares them
	ReportedAhead record.Ahead  // what shards wait for, as it was published last
}

// EndedRun is a run whose function has returned.
type EndedRun struct {
	Shard      int
	Err        error
	HandedBack bool // the run is to be made again as another attempt
}

// Decision is what an incarnation writes, and then does.
type Decision struct {
	Claims      record.Claims
	Starts      record.Runs    // to be started once the claims are committed
	RestsOnPlan bool           // it rests on the plan
	Changed     bool           // there is something to write
	Wake        record.Instant // when to look again if nothing happens; zero: never
	Ahead       record.Ahead   // what shards wait for that is ahead of this clock
}

// Decide decides what to write about a job: a pure function. A pending re-run comes
// before any other run of its shard, then triggers, then the schedule. Disabled shards run
// nothing.
func (in *Input) Decide() Decision {
	out := Decision{Claims: in.Claims}
	in.recordEnds(&out)
	if in.Plan == nil {
		return out
	}
	out.Ahead = in.findAhead()
	if !in.MayClaim || in.Plan.Paused {
		return out
	}
	if out.Ahead.Epoch != 0 {
		out.wakeNoLaterThan(out.Ahead.At.Add(-skew.Reach * in.AllowedSkew)) // it is no longer ahead then
	}
	mine := in.Plan.Owners[in.Me]
	free := mine.Minus(in.Plan.Frozen).Minus(in.Blocked)
	for i := range out.Claims.Running {
		free = free.Minus(out.Claims.Running[i].Shards)
	}
	if free.IsZero() {
		return out
	}
	marks := in.Claims.Watermarks.Fold(in.Plan.Watermarks, free)
	if in.dropsReruns() {
		marks = in.dropReruns(&out, marks, free)
	}
	for _, part := range marks.Split(free) {
		disabled := part.Shards.Intersect(in.Plan.Disabled)
		in.claimForShards(&out, part.Shards.Minus(disabled), part.Watermark)
		in.skipForDisabled(&out, disabled, part.Watermark)
	}
	if out.RestsOnPlan {
		// The plan that the claim names as a condition says what is mine, so what is said
		// of other shards here has been folded into it and can go.
		out.Claims.Watermarks = out.Claims.Watermarks.Within(mine)
		out.Claims.Reruns = due.Unclaimed(out.Claims.Reruns.Within(mine), out.Claims.Watermarks)
	}
	return out
}

// close takes ended runs off the record.
func (in *Input) recordEnds(out *Decision) {
	if len(in.Ended) == 0 {
		return
	}
	var done, failed, returned shardset.Set
	for _, e := range in.Ended {
		done.Add(e.Shard)
		switch {
		case e.HandedBack:
			returned.Add(e.Shard)
		case e.Err != nil:
			failed.Add(e.Shard)
		}
	}
	for _, g := range in.Claims.Running {
		if part := g.Shards.Intersect(returned); !part.IsZero() {
			out.Claims.Reruns = out.Claims.Reruns.With(part, g.Return())
		}
		if g.Shards = g.Shards.Intersect(failed); g.Shards.IsZero() {
			continue
		}
		first := slices.IndexFunc(in.Ended, func(e EndedRun) bool { return g.Shards.Has(e.Shard) })
		out.Claims.Failures = out.Claims.Failures.With(record.Failure{RunGroup: g, At: in.Now, Error: in.Ended[first].Err.Error()})
	}
	out.Claims.Running = out.Claims.Running.Without(done)
	out.Claims.Counts.Succeeded += uint64(done.Len() - failed.Len() - returned.Len())
	out.Claims.Counts.Failed += uint64(failed.Len())
	out.Claims.Ended = in.Now
	out.Changed = true
}

// part decides for free shards that share a mark.
func (in *Input) claimForShards(out *Decision, shards shardset.Set, m record.Watermark) {
	for _, g := range out.pendingReruns(in.Plan) {
		if sub := shards.Intersect(g.Shards); !sub.IsZero() && !m.Covers(g.Ref) {
			in.claimRun(out, sub, g.Ref, m)
			shards = shards.Minus(sub)
		}
	}
	for _, t := range in.Plan.Triggers {
		if t.Number <= m.Trigger || shards.IsZero() {
			continue
		}
		e, ok := in.Plan.Epoch(t.Epoch)
		if !ok {
			continue
		}
		if sub := shards.Intersect(due.TriggerTargets(t, e)); !sub.IsZero() {
			in.claimRun(out, sub, record.Ref{Epoch: t.Epoch, Fire: t.At, Trigger: t.Number, Attempt: 1}, m)
			shards = shards.Minus(sub)
		}
	}
	in.claimDueFires(out, shards, m, false)
}

// pass decides for free shards that share a mark and are disabled: fires that fall due are
// passed over as they come, and counted. Triggers and re-runs wait. A mark beyond the fire
// of a re-run would say that it was claimed, so fires wait behind it.
func (in *Input) skipForDisabled(out *Decision, shards shardset.Set, m record.Watermark) {
	for _, g := range out.pendingReruns(in.Plan) {
		if g.Trigger == 0 && !m.Covers(g.Ref) {
			shards = shards.Minus(g.Shards)
		}
	}
	in.claimDueFires(out, shards, m, true)
}

// reruns returns the pending re-runs: those of the plan, and those that this incarnation
// handed back itself, just now or earlier. A watermark covers the ones that have been claimed.
func (out *Decision) pendingReruns(plan *record.Plan) record.Runs {
	if len(out.Claims.Reruns) == 0 {
		return plan.Reruns
	}
	return slices.Concat(plan.Reruns, out.Claims.Reruns)
}

// givesUp reports that pending re-runs are not made any more: they come from a definition that
// wanted them, and the newest counts what a crash ends.
func (in *Input) dropsReruns() bool {
	job := in.Plan.Last().Job()
	return job.OnCrash == record.CrashFail && due.TracksRuns(job)
}

// giveUp counts the pending re-runs of free shards as lost, and returns the marks that these
// have then: as if the re-runs had been claimed, so that they are made nowhere else.
func (in *Input) dropReruns(out *Decision, marks record.Watermarks, free shardset.Set) record.Watermarks {
	for _, g := range out.pendingReruns(in.Plan) {
		for _, part := range marks.Split(free.Intersect(g.Shards)) {
			if part.Covers(g.Ref) {
				continue
			}
			m := part.Max(g.Watermark())
			marks = marks.Raise(part.Shards, m)
			out.raiseWatermark(part.Shards, m)
			out.Claims.Counts.Lost += uint64(part.Shards.Len())
			ended := g.Ref
			ended.Attempt-- // the one that a crash ended
			out.Claims.Failures = out.Claims.Failures.With(record.Failure{
				RunGroup: record.RunGroup{Shards: part.Shards, Ref: ended}, At: in.Now, Error: due.CrashedRunError,
			})
		}
	}
	return marks
}

// schedule decides for free shards that share a mark by the schedules of all epochs.
func (in *Input) claimDueFires(out *Decision, shards shardset.Set, m record.Watermark, disabled bool) {
	for i := range in.Plan.Epochs {
		e := &in.Plan.Epochs[i]
		sub := shards.Intersect(shardset.Range(0, e.Job().Shards))
		if sub.IsZero() {
			continue
		}
		if in.claimDueOfEpoch(out, e, sub, m, disabled) {
			shards = shards.Minus(sub)
		}
	}
}

// scheduled decides for free shards by one epoch's schedule. It reports whether later
// epochs have to wait for it.
func (in *Input) claimDueOfEpoch(out *Decision, e *record.Epoch, shards shardset.Set, m record.Watermark, disabled bool) bool {
	prog, ok := in.Programs[e.Number]
	if !ok {
		return true // its definition does not compile here; others may know better
	}
	owed, ok := due.InEpoch(e, prog, m, in.Now, disabled)
	if !ok {
		return false
	}
	out.Claims.Counts.Skipped += uint64(owed.Skipped * shards.Len())
	if !owed.Fire.IsZero() {
		in.claimRun(out, shards, record.Ref{Epoch: e.Number, Fire: record.InstantOf(owed.Fire), Attempt: 1, Missed: owed.Missed}, m)
		return true
	}
	if !owed.Through.IsZero() {
		out.raiseWatermark(shards, m.Max(record.Watermark{Epoch: e.Number, Fire: record.InstantOf(owed.Through)}))
	}
	if owed.Wake.IsZero() {
		return false
	}
	out.wakeNoLaterThan(record.InstantOf(owed.Wake))
	return true
}

// wakeBy has the next look happen at an instant at the latest.
func (out *Decision) wakeNoLaterThan(at record.Instant) {
	if out.Wake == 0 || at < out.Wake {
		out.Wake = at
	}
}

// start puts runs of shards with mark m on the record. A definition that does not compile
// here may be known to others, so its runs are left to them, and come first all the same.
func (in *Input) claimRun(out *Decision, shards shardset.Set, r record.Ref, m record.Watermark) {
	if _, ok := in.Programs[r.Epoch]; !ok {
		return
	}
	out.raiseWatermark(shards, m.Max(r.Watermark()))
	out.Claims.Running = out.Claims.Running.With(shards, r)
	out.Claims.Counts.Claimed += uint64(shards.Len())
	out.Starts = out.Starts.With(shards, r)
}

func (out *Decision) raiseWatermark(shards shardset.Set, m record.Watermark) {
	out.Claims.Watermarks = out.Claims.Watermarks.Raise(shards, m)
	out.RestsOnPlan, out.Changed = true, true
}
