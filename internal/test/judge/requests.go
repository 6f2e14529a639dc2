package judge

import "slices"

// judgeRequest judges a new trigger of a plan: one for a fire of a backfill is for the next one that an operator
// asked for.
func (o *Judge) judgeRequest(j *jobState, t trigger) {
	switch t.Reason {
	case "retry":
		o.report.FiresRetried++
	case "backfill":
		o.report.Backfilled++
		b := j.backfills[t.Backfill]
		if b == nil || len(b.Fires) == 0 || b.Fires[0] != t.Fire {
			o.addJobViolation(12, j, "trigger %d is for the fire %v of backfill %d, which is not the next one", t.Number, t.Fire, t.Backfill)
			return
		}
		b.Fires = b.Fires[1:]
	}
}

// judgeBackfills records the new backfills of a control record, and judges that no fire leaves the record before it is
// in a plan. The order of the operations in a commit does not matter.
func (o *Judge) judgeBackfills(j *jobState, rec *controlRecord) {
	for i := range rec.Backfills {
		b := &rec.Backfills[i]
		if j.backfills[b.Number] == nil {
			j.backfills[b.Number] = &backfill{b.Number, b.Parallel, slices.Clone(b.Fires)}
		}
	}
}

// judgeParallel judges how many triggers of each backfill a plan has.
func (o *Judge) judgeParallel(j *jobState, p *planRecord) {
	for number, n := range p.countBackfillTriggers() {
		if b := j.backfills[number]; b != nil && n > b.Parallel {
			o.addJobViolation(12, j, "the plan has %d fires of backfill %d, which allows %d", n, number, b.Parallel)
		}
	}
}

// countBackfillTriggers returns how many triggers of each backfill a plan has; nil for none.
func (p *planRecord) countBackfillTriggers() map[uint64]int {
	var n map[uint64]int
	for i := range p.Triggers {
		if b := p.Triggers[i].Backfill; b != 0 {
			if n == nil {
				n = map[uint64]int{}
			}
			n[b]++
		}
	}
	return n
}

// judgeTriggered judges the claim of a trigger.
func (o *Judge) judgeTriggered(j *jobState, n int, r run) {
	t, left := j.requests[r.Trigger], j.triggers[r.Trigger]
	if r.Attempt == 1 && !left.has(n) {
		o.addJobViolation(2, j, "shard %d: %s was claimed, but no plan has such a trigger for the shard", n, r)
	}
	if r.Fire != t.fire() {
		o.addJobViolation(12, j, "shard %d: %s was claimed for the fire %v, but the trigger is for %v", n, r, r.Fire, t.fire())
	}
	if left &^= 1 << n; left != 0 {
		j.triggers[r.Trigger] = left
	} else {
		delete(j.triggers, r.Trigger)
	}
}

// isPast reports whether a run is of a trigger for a fire of the past, which jobs that follow do not wait for.
func (j *jobState) isPast(r run) bool { return r.Trigger > 0 && j.requests[r.Trigger].Fire != 0 }

// addAskedCancels records the runs that a control record names as cancelled.
func (j *jobState) addAskedCancels(rec *controlRecord) {
	rec.Cancels.all(func(n int, r run) {
		sh := j.shard(n)
		if sh.asked == nil {
			sh.asked = map[life]bool{}
		}
		sh.asked[j.life(r)] = true
	})
}

// addCancels records the runs that a plan names as cancelled.
func (j *jobState) addCancels(o *Judge, p *planRecord) {
	p.Cancels.all(func(n int, r run) {
		sh, of := j.shard(n), j.life(r)
		if _, known := sh.cancelled[of]; known {
			return
		}
		if sh.cancelled == nil {
			sh.cancelled = map[life]instant{}
		}
		sh.cancelled[of] = instantOf(o.now)
		o.report.RunsCancelled++
	})
}

// judgeCancelledCall judges a call that has returned: if its run was cancelled, its context ended.
func (o *Judge) judgeCancelledCall(j *jobState, sh *shardState, c *claimState, f *Call) {
	at, ok := sh.cancelled[c.life]
	if !ok {
		return
	}
	known := max(at, instantOf(f.Start)).add(o.maxDelay)
	ended := f.end
	if !f.canceled.IsZero() {
		ended = f.canceled
	}
	if instantOf(ended) > known && o.isUndisturbed(f.Client, span{at.add(-1e9), known}) {
		o.addJobViolation(11, j, "shard %d: a plan named %s as cancelled at %v, but the context of its call had not ended by %v", f.Shard, f.run(), at, known)
	}
}

// countFailedCalls returns how many runs on record as ended had a call that failed, since the job was forgotten last.
func (j *jobState) countFailedCalls() int {
	failed := 0
	for _, sh := range j.shards {
		for key, c := range sh.attempts {
			if c.recorded && c.failed && key.resets >= j.firstLife {
				failed++
			}
		}
	}
	return failed
}

// judgeRetried judges that each trigger which retries a fire is of shards whose last attempt at the fire did not
// succeed.
func (o *Judge) judgeRetried(j *jobState) {
	for _, t := range j.requests {
		if t.Reason != "retry" || t.Shards == nil {
			continue
		}
		t.Shards.all(func(n int) {
			if !j.shard(n).hasFailed(&t) {
				o.addJobViolation(12, j, "trigger %d retries the fire %v for shard %d, of which no run of it failed", t.Number, t.Fire, n)
			}
		})
	}
}

// hasFailed reports whether the last attempt at the fire of a trigger did not succeed, by schedule or by an earlier
// trigger. A failure may be older than the last time that the job was forgotten: claims of live members stay.
func (sh *shardState) hasFailed(t *trigger) bool {
	last := map[life]int{}
	for key, c := range sh.attempts {
		if c.fire == t.Fire && (key.trigger != t.Number || c.recorded) {
			last[key.life] = max(last[key.life], key.number)
		}
	}
	for of, number := range last {
		if c := sh.attempts[attempt{of, number}]; !c.recorded || c.failed || c.returned == 0 {
			return true
		}
	}
	return false
}

// judgeRequestsServed judges, in a settled fleet, that nothing waits that operators have asked for, apart from disabled
// shards.
func (o *Judge) judgeRequestsServed(j *jobState) {
	if n := len(j.control.Cancels); n > 0 {
		o.addJobViolation(11, j, "%d cancelled runs never reached the plan", n)
	}
	j.plan.Cancels.all(func(n int, r run) {
		sh := j.shard(n)
		running, ok := sh.running[j.plan.owner(n)]
		if sh.orphan == nil && (!ok || running.work() != r.work()) {
			o.addJobViolation(11, j, "shard %d: the plan still cancels %s, which is neither in progress nor pending", n, r)
		}
	})
	inPlan := j.plan.countBackfillTriggers()
	for number, b := range j.backfills {
		if len(b.Fires) > 0 && inPlan[number] < b.Parallel {
			o.addJobViolation(12, j, "%d fires of backfill %d have not begun, and %d are in the plan", len(b.Fires), number, inPlan[number])
		}
	}
}
