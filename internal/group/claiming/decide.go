package claiming

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Input holds all that a decision about one job depends on. Decide does not modify it.
type Input struct {
	Me            string
	Plan          *record.Plan        // nil: none has been observed
	Programs      map[int]due.Program // by epoch number; an unsupported definition has none
	Claims        record.Claims       // the claims record as last committed
	ClaimedAt     ClaimTimes          // of the runs in Claims.Running, if the definition has an OnOverlap
	Ended         []EndedRun          // runs that have ended since
	Blocked       shardset.Set        // shards whose handler of an earlier incarnation has not returned
	Now           record.Instant
	MayClaim      bool          // new runs may be claimed
	AllowedSkew   time.Duration // 0: clocks are not compared
	ReportedAhead record.Ahead  // as last published in the member record
	// FreeSlots is how many runs of each pool may be claimed. Jobs without a pool need none.
	FreeSlots map[string]int
	Trace     *Trace // receives the reasons of the decision; nil: they are not recorded
}

// EndedRun is a run whose handler has returned.
type EndedRun struct {
	Shard      int
	Pool       string // of which the run had a slot
	Err        error
	HandedBack bool // the run is to be made again, as the next attempt
	Retry      bool // the run failed, and is to be made again after RetryIn
	RetryIn    time.Duration
	At         record.Instant // by this member's clock
}

// Decision is the claims record to commit, and the actions that follow the commit.
type Decision struct {
	Claims      record.Claims
	ClaimedAt   ClaimTimes  // of the runs in Claims.Running
	Starts      record.Runs // to be started once Claims is committed
	Skipped     []event.Skipped
	RestsOnPlan bool           // the commit needs the plan's revision as a condition
	Changed     bool           // Claims differs from the record
	Wake        record.Instant // when to decide again if no input changes; zero: never
	Overrun     shardset.Set   // running shards whose run a due fire cancels
	Outdated    shardset.Set   // running shards whose run another definition has replaced
	Awaited     bool           // a fire is due for a shard that runs: decide again as soon as it ends
	Ahead       record.Ahead   // to be published: an instant ahead of this clock that shards wait for
	Waits       PoolWaits      // due runs that wait for a slot of their pool

	taken map[string]int // slots of pools that Starts use
}

// Decide decides what to commit for a job. For each shard, a pending re-run comes first, then triggers
// in order, then the schedule. A disabled shard runs nothing.
func (in *Input) Decide() Decision {
	in = in.withCancelledEnds()
	out := Decision{Claims: in.Claims, ClaimedAt: in.ClaimedAt}
	in.decide(&out)
	if out.Changed {
		in.dropEndedFires(&out)
	}
	return out
}

func (in *Input) decide(out *Decision) {
	in.recordEnds(out)
	if in.Plan == nil {
		return
	}
	out.Ahead = in.findAhead()
	mine := in.Plan.Owners[in.Me]
	if in.Trace != nil {
		in.Trace.note(Disabled, mine.Intersect(in.Plan.Disabled), record.Ref{})
	}
	if in.Plan.Paused {
		in.Trace.note(Paused, mine, record.Ref{})
		return
	}
	if in.MayClaim {
		if out.Ahead.Epoch != 0 {
			out.wakeNoLaterThan(out.Ahead.At.Add(-in.maxLead())) // from then on it is within the limit
		}
		in.claimFree(out)
		in.awaitRunning(out)
	} else {
		in.Trace.note(Closed, mine, record.Ref{})
	}
	outdated, next := FindOutdated(in.Plan, out.Claims.Running, in.Now)
	if out.Outdated = outdated; next != 0 {
		out.wakeNoLaterThan(next)
	}
}

// FindOutdated returns the shards of running whose epoch is not the last and has ended by now, and when the next of them
// has, zero if none will. Until then a run goes on: one that ended earlier would be followed by more runs of its epoch.
func FindOutdated(plan *record.Plan, running record.Runs, now record.Instant) (outdated shardset.Set, next record.Instant) {
	for _, g := range running {
		if g.Epoch == plan.Last().Number {
			continue
		}
		if e, ok := plan.Epoch(g.Epoch); !ok || e.Until <= now {
			outdated = outdated.Union(g.Shards)
		} else if next == 0 || e.Until < next {
			next = e.Until
		}
	}
	return outdated, next
}

// claimFree claims the due runs of the shards that are free.
func (in *Input) claimFree(out *Decision) {
	mine := in.Plan.Owners[in.Me]
	free := in.Trace.hold(Blocked, mine, in.Blocked, record.Ref{})
	free = in.Trace.hold(Frozen, free, in.Plan.Frozen, record.Ref{})
	for i := range out.Claims.Running {
		free = in.Trace.hold(Running, free, out.Claims.Running[i].Shards, out.Claims.Running[i].Ref)
	}
	if free.IsZero() {
		return
	}
	watermarks := out.Claims.Watermarks.Fold(in.Plan.Watermarks, free)
	if in.dropsReruns() {
		watermarks = in.dropReruns(out, watermarks, free)
	}
	watermarks = in.dropCancelled(out, watermarks, free)
	watermarks = in.skipOverlapped(out, watermarks, free)
	for _, group := range in.orderForPool(watermarks.Split(free)) {
		disabled := group.Shards.Intersect(in.Plan.Disabled)
		in.claimForShards(out, group.Shards.Minus(disabled), group.Watermark)
		in.skipForDisabled(out, disabled, group.Watermark)
	}
	if out.RestsOnPlan {
		// The commit has the plan's revision as a condition, so this member owns no other shards,
		// and the plan already contains the watermarks and re-runs that it recorded for them.
		out.Claims.Watermarks = out.Claims.Watermarks.Within(mine)
		out.Claims.Reruns = due.Unclaimed(out.Claims.Reruns.Within(mine), out.Claims.Watermarks)
	}
}

// awaitRunning finds out when the next fire of a shard that runs is due: from then on it waits for the
// end of the run.
func (in *Input) awaitRunning(out *Decision) {
	mine := in.Plan.Owners[in.Me].Minus(in.Plan.Frozen).Minus(in.Plan.Disabled)
	for i := range in.Plan.Epochs {
		e := &in.Plan.Epochs[i]
		prog, ok := in.Programs[e.Number]
		if !ok {
			continue
		}
		of := mine.Intersect(shardset.Range(0, e.Job().Shards))
		in.awaitFires(out, of, e, prog)
		if e.Job().CancelsOverlapped() {
			in.cancelOverlapped(out, of, e, prog)
		}
	}
}

// awaitFires is awaitRunning for one epoch.
func (in *Input) awaitFires(out *Decision, shards shardset.Set, e *record.Epoch, prog due.Program) {
	for i := range out.Claims.Running {
		for _, group := range out.Claims.Watermarks.Split(out.Claims.Running[i].Shards.Intersect(shards)) {
			found, ok := due.InEpoch(e, prog, group.Watermark, in.Now, false)
			switch {
			case !ok:
			case found.HasAny():
				out.Awaited = true
			case !found.Wake.IsZero():
				out.wakeNoLaterThan(record.InstantOf(found.Wake))
			}
		}
	}
}

// recordEnds removes ended runs from those in progress and records their outcomes.
func (in *Input) recordEnds(out *Decision) {
	if len(in.Ended) == 0 {
		return
	}
	var ended, failed, handedBack, retried shardset.Set
	for _, e := range in.Ended {
		ended.Add(e.Shard)
		switch {
		case e.HandedBack:
			handedBack.Add(e.Shard)
		case e.Retry:
			retried.Add(e.Shard)
			failed.Add(e.Shard)
		case e.Err != nil:
			failed.Add(e.Shard)
		}
	}
	for _, g := range in.Claims.Running {
		if part := g.Shards.Intersect(handedBack); !part.IsZero() {
			out.Claims.Reruns = out.Claims.Reruns.With(part, g.Return())
		}
		if g.Shards = g.Shards.Intersect(failed); g.Shards.IsZero() {
			continue
		}
		if !g.Shards.Intersect(retried).IsZero() {
			in.addRetries(out, g)
		}
		in.noteFailed(out, g.Shards.Minus(retried), g.Ref)
		g.NotBefore, g.RetryDelay = 0, 0 // the shards of one fire fail together, whenever they began
		in.addFailure(out, g, g.Shards.Intersect(retried), true)
		in.addFailure(out, g, g.Shards.Minus(retried), false)
	}
	in.countEnds(out)
	out.Claims.Running = out.Claims.Running.Without(ended)
	out.ClaimedAt = out.ClaimedAt.without(ended)
	out.Claims.Counts.Succeeded += uint64(ended.Len() - failed.Len() - handedBack.Len())
	out.Claims.Counts.Failed += uint64(failed.Minus(retried).Len())
	out.Claims.Counts.Retried += uint64(retried.Len())
	out.Claims.Ended = in.Now
	out.Changed = true
}

// addFailure records the failure of those runs of a group that are of these shards.
func (in *Input) addFailure(out *Decision, g record.RunGroup, shards shardset.Set, again bool) {
	first := slices.IndexFunc(in.Ended, func(e EndedRun) bool { return shards.Has(e.Shard) })
	if first < 0 {
		return
	}
	last := in.Claims.Watermarks.LastTrigger(shards)
	if in.Plan != nil {
		last = max(last, in.Plan.Watermarks.LastTrigger(shards))
	}
	g.Shards = shards
	out.Claims.Failures = out.Claims.Failures.With(record.Failure{
		RunGroup: g, At: in.Now, Error: in.Ended[first].Err.Error(), Again: again, LastTrigger: last,
	}.In(in.Plan))
}

// countEnds raises the watermarks of shards to the ends of their runs, of definitions by which the next fire
// counts from there. A run that is to be made again has not ended. The shards ran until this commit, so no
// other member has claimed a fire of them.
func (in *Input) countEnds(out *Decision) {
	if !in.countsEnds() {
		return
	}
	for _, e := range in.Ended {
		run, ok := in.Claims.Running.Of(e.Shard)
		if !ok || e.HandedBack || e.Retry || !due.CountsEnds(in.Programs[run.Epoch]) {
			continue
		}
		out.Claims.Watermarks = out.Claims.Watermarks.Raise(shardset.Of(e.Shard), record.Watermark{Epoch: run.Epoch, Fire: due.EndOf(min(e.At, in.Now))})
	}
}

// countsEnds reports whether the fires of an epoch count from ends.
func (in *Input) countsEnds() bool {
	for _, prog := range in.Programs {
		if due.CountsEnds(prog) {
			return true
		}
	}
	return false
}

// addRetries puts on record the next attempts at failed runs.
func (in *Input) addRetries(out *Decision, failed record.RunGroup) {
	for _, e := range in.Ended {
		if e.Retry && failed.Shards.Has(e.Shard) {
			out.Claims.Reruns = out.Claims.Reruns.With(shardset.Of(e.Shard), failed.RetryAt(retryTime(in.Now, e.RetryIn), e.RetryIn))
		}
	}
}

// retryTime returns when a retry after a delay may begin. It is rounded up by at most a sixteenth of the
// delay, so that shards which fail one after the other share few instants, and the record stays small.
func retryTime(now record.Instant, delay time.Duration) record.Instant {
	grain, at := int64(retryGrain(delay)), int64(now.Add(delay))
	return record.Instant(at + (grain-at%grain)%grain)
}

// retryGrain returns the bound of the rounding of a retry's time.
func retryGrain(delay time.Duration) time.Duration { return max(delay/16, time.Millisecond) }

// claimForShards claims the next run of each free shard. All of them have watermark m.
func (in *Input) claimForShards(out *Decision, shards shardset.Set, m record.Watermark) {
	for _, g := range out.pendingReruns(in.Plan) {
		if sub := shards.Intersect(g.Shards); !sub.IsZero() && !m.Covers(g.Ref) {
			if in.mustWait(g.Ref) {
				in.Trace.note(Waits, sub, g.Ref)
				out.wakeNoLaterThan(g.NotBefore)
			} else {
				in.claimRun(out, sub, g.Ref, m)
			}
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
			in.claimRun(out, sub, record.Ref{Epoch: t.Epoch, Fire: t.FireTime(), Trigger: t.Number, Attempt: 1}, m)
			shards = shards.Minus(sub)
		}
	}
	in.claimDueFires(out, shards, m, false)
}

// mustWait reports whether the time of a retry has not come. A retry that a clock beyond the limit put on
// record does not wait.
func (in *Input) mustWait(r record.Ref) bool {
	delay := time.Duration(r.RetryDelay)
	failed := r.NotBefore.Add(-delay - retryGrain(delay)) // at the earliest
	return r.NotBefore > in.Now && (in.AllowedSkew == 0 || failed <= in.Now.Add(in.maxLead()))
}

// skipForDisabled skips and counts the due fires of free, disabled shards with watermark m. Triggers
// and re-runs wait until the shard is enabled. Fires after a pending re-run wait as well: a watermark
// beyond the re-run's fire would mean that the re-run was claimed.
func (in *Input) skipForDisabled(out *Decision, shards shardset.Set, m record.Watermark) {
	for _, g := range out.pendingReruns(in.Plan) {
		if g.Trigger == 0 && !m.Covers(g.Ref) {
			shards = shards.Minus(g.Shards)
		}
	}
	in.claimDueFires(out, shards, m, true)
}

// pendingReruns returns the re-runs of the plan and those of runs that this incarnation has handed
// back. Some may be claimed already: then the watermark covers them.
func (out *Decision) pendingReruns(plan *record.Plan) record.Runs {
	if len(out.Claims.Reruns) == 0 {
		return plan.Reruns
	}
	return slices.Concat(plan.Reruns, out.Claims.Reruns)
}

// dropsReruns reports whether pending re-runs are counted as lost instead of run. An earlier definition
// asked for them; the newest counts crashed runs as failed.
func (in *Input) dropsReruns() bool {
	job := in.Plan.Last().Job()
	return job.OnCrash == record.CrashFail && due.TracksRuns(job)
}

// dropReruns counts the pending re-runs of free shards as lost, apart from retries. It returns the watermarks with these
// re-runs covered, so that no other instance runs them either.
func (in *Input) dropReruns(out *Decision, watermarks record.Watermarks, free shardset.Set) record.Watermarks {
	for _, g := range out.pendingReruns(in.Plan) {
		for _, group := range watermarks.Split(free.Intersect(g.Shards)) {
			if group.Covers(g.Ref) || g.IsRetry() {
				continue
			}
			in.Trace.note(Lost, group.Shards, g.Ref)
			m := group.Max(g.Watermark())
			watermarks = watermarks.Raise(group.Shards, m)
			out.raiseWatermark(group.Shards, m)
			out.Claims.Counts.Lost += uint64(group.Shards.Len())
			in.noteFailed(out, group.Shards, g.Ref)
			out.Claims.Failures = out.Claims.Failures.With(record.Failure{
				RunGroup: record.RunGroup{Shards: group.Shards, Ref: g.Before()}, At: in.Now, Error: due.CrashedRunError, LastTrigger: m.Trigger,
			}.In(in.Plan))
		}
	}
	return watermarks
}

// claimDueFires claims, or for disabled shards skips, the fires that are due. A shard's fires of an
// earlier epoch come before those of a later one.
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

// claimDueOfEpoch claims or skips the due fires of one epoch. It reports whether these shards' fires of
// later epochs have to wait.
func (in *Input) claimDueOfEpoch(out *Decision, e *record.Epoch, shards shardset.Set, m record.Watermark, disabled bool) bool {
	prog, ok := in.Programs[e.Number]
	if !ok {
		in.Trace.note(Unsupported, shards, record.Ref{Epoch: e.Number})
		return true // an instance that supports the definition has to serve its fires first
	}
	found, ok := due.InEpoch(e, prog, m, in.Now, disabled)
	if !ok {
		return false
	}
	if !found.Fire.IsZero() {
		// Those that wait skip nothing yet: a later decision finds their fires again.
		shards = in.takeSlots(out, shards, record.Ref{Epoch: e.Number, Fire: record.InstantOf(found.Fire), Attempt: 1, Missed: found.Missed})
		if shards.IsZero() {
			return true
		}
	}
	if found.Skipped > 0 {
		in.Trace.note(Skips, shards, record.Ref{Epoch: e.Number, Fire: record.InstantOf(found.Through)})
		reason := event.Misfire
		if disabled {
			reason = event.Disabled
		}
		in.skipFires(out, &found, shards, reason, due.FirstUnclaimed(e, prog, m))
	}
	if !found.Fire.IsZero() {
		in.claimWithSlots(out, shards, record.Ref{Epoch: e.Number, Fire: record.InstantOf(found.Fire), Attempt: 1, Missed: found.Missed}, m)
		return true
	}
	if !found.Through.IsZero() {
		out.raiseWatermark(shards, m.Max(record.Watermark{Epoch: e.Number, Fire: record.InstantOf(found.Through)}))
	}
	if found.Wake.IsZero() {
		return false
	}
	in.Trace.note(NotDue, shards, record.Ref{Epoch: e.Number, Fire: record.InstantOf(found.Wake)})
	out.wakeNoLaterThan(record.InstantOf(found.Wake))
	return true
}

// skipFires counts and reports the fires that are skipped for each of shards, of which none is before the instant from.
func (in *Input) skipFires(out *Decision, found *due.Due, shards shardset.Set, reason event.SkipReason, from record.Instant) {
	out.Claims.Counts.Skipped += uint64(found.Skipped * shards.Len())
	report := func(fires int, reason event.SkipReason) {
		if fires > 0 {
			out.Skipped = append(out.Skipped, event.Skipped{
				Job: in.Claims.Job, Kind: in.Plan.Last().Job().Kind, Reason: reason, Shards: shards, Fires: fires, From: from, Through: record.InstantOf(found.Through),
			})
		}
	}
	report(found.Expired, event.Expired)
	report(found.Skipped-found.Expired, reason)
}

func (out *Decision) wakeNoLaterThan(at record.Instant) {
	if out.Wake == 0 || at < out.Wake {
		out.Wake = at
	}
}

// claimRun claims run r for those of shards with watermark m that get a slot of its pool. If the definition is unsupported, it claims
// nothing; the run still precedes later ones, and waits for an owner that supports it.
func (in *Input) claimRun(out *Decision, shards shardset.Set, r record.Ref, m record.Watermark) {
	if _, ok := in.Programs[r.Epoch]; !ok {
		in.Trace.note(Unsupported, shards, r)
		return
	}
	if shards = in.takeSlots(out, shards, r); !shards.IsZero() {
		in.claimWithSlots(out, shards, r, m)
	}
}

// claimWithSlots is claimRun for shards that have the slots that the run needs.
func (in *Input) claimWithSlots(out *Decision, shards shardset.Set, r record.Ref, m record.Watermark) {
	in.Trace.note(Claims, shards, r)
	if in.Plan.Last().Job().OnOverlap != "" {
		out.ClaimedAt = out.ClaimedAt.with(shards, in.Now)
	}
	out.raiseWatermark(shards, m.Max(r.Watermark()))
	out.Claims.Running = out.Claims.Running.With(shards, r)
	in.noteRan(out, shards, r)
	out.Claims.Counts.Claimed += uint64(shards.Len())
	out.Starts = out.Starts.With(shards, r)
}

func (out *Decision) raiseWatermark(shards shardset.Set, m record.Watermark) {
	out.Claims.Watermarks = out.Claims.Watermarks.Raise(shards, m)
	out.RestsOnPlan, out.Changed = true, true
}
