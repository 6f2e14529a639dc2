package judge

import (
	"slices"
	"time"
)

// JudgeSettled judges a fleet that no fault has disturbed for a while, at an instant before which no fire
// became due for slack.
func (o *Judge) JudgeSettled(now time.Time, slack time.Duration) {
	o.now = now
	for _, j := range o.jobs {
		if j.defined.isKnown {
			o.judgeDefinedSettled(j, instantOf(now.Add(-slack)))
		}
		if j.plan == nil {
			o.judgeOffered(j)
			continue
		}
		if eligible, excluded := o.eligibleMembers(j); len(eligible) > 0 || !excluded {
			o.judgeNothingPending(j, instantOf(now.Add(-slack)))
			o.judgeFollowed(j, instantOf(now.Add(-slack)))
			o.judgeNothingAhead(j, instantOf(now.Add(slack)))
			o.judgeEvenness(j, eligible)
			o.judgeReaped(j)
		} else if len(j.plan.Owners) > 0 || j.plan.Problem == "" {
			o.addJobViolation(9, j, "all members that offer the job are disabled or lack labels, but %d members own shards, and the problem of the plan is %q", len(j.plan.Owners), j.plan.Problem)
		}
		if j.plan.Resets < j.control.Resets || j.plan.Resets > max(j.control.Resets, j.resetsBefore) {
			o.addJobViolation(9, j, "operators asked for %d resets, but the plan has %d", j.control.Resets, j.plan.Resets)
		}
		if j.plan.Disabled != j.control.Shards {
			o.addJobViolation(9, j, "operators disabled the shards of the bit set %b, but the plan has %b", j.control.Shards, j.plan.Disabled)
		}
	}
	for inc := range o.members {
		if !o.alive(inc) {
			o.addJobViolation(5, nil, "the member record of %s was not reaped after its session ended", inc)
		}
	}
}

// IsSettled reports whether Settled would find nothing.
func (o *Judge) IsSettled(now time.Time, slack time.Duration) bool {
	before := o.report
	o.report = &Report{}
	o.JudgeSettled(now, slack)
	settles := len(o.report.Broken) == 0
	o.report = before
	return settles
}

// judgeNothingPending judges that all due fires and triggers were claimed or skipped.
func (o *Judge) judgeNothingPending(j *jobState, due instant) {
	for n, sh := range j.shards {
		if sh.orphan != nil && j.plan.Disabled.has(n) {
			continue // the re-run waits until the shard is enabled, and later fires wait for it
		}
		if sh.orphan != nil && sh.orphan.since <= due {
			o.addJobViolation(3, j, "shard %d: %s, whose session ended at %v, was never claimed again", n, sh.orphan.run, sh.orphan.since)
		}
		last := j.epochs[len(j.epochs)-1].Number
		if j.epochs[len(j.epochs)-1].delay > 0 && len(sh.running) > 0 {
			continue // the next fire counts from the end of the run
		}
		missing, err := j.countDue(n, sh.epoch, sh.watermark, last, due)
		missing -= j.countYoungReleases(n, due, instantOf(o.now))
		if err != nil || missing > 0 {
			o.addJobViolation(2, j, "shard %d: %d fires after %v in epoch %d were neither claimed nor skipped (error: %v)",
				n, missing, sh.watermark, sh.epoch, err)
		}
		all, _ := j.countDue(n, 0, 0, last, due)
		o.report.Due += all
	}
	for number, left := range j.triggers {
		if left &^= j.plan.Disabled; left != 0 {
			o.addJobViolation(2, j, "trigger %d was never claimed by %d shards", number, left.len())
		}
	}
}

// JudgeProblems judges, when all clocks are right again, that the plan names a problem if a shard waits for
// an instant that a wrong clock reached.
func (o *Judge) JudgeProblems(now time.Time, far time.Duration) {
	o.now = now
	limit := instantOf(now.Add(far))
	for _, j := range o.jobs {
		if j.plan == nil || j.plan.last().Until != 0 || j.plan.Problem != "" {
			continue
		}
		if last := j.plan.last(); last.From > limit && len(j.plan.Owners) > 0 {
			o.addJobViolation(2, j, "epoch %d begins as late as %v, but the plan names no problem", last.Number, last.From)
		}
		for n, sh := range j.shards {
			if sh.epoch == j.plan.last().Number && sh.watermark > limit && j.plan.owner(n) != "" {
				o.addJobViolation(2, j, "shard %d: the watermark is at %v, far ahead, but the plan names no problem", n, sh.watermark)
			}
		}
	}
}

// judgeNothingAhead judges that no shard waits for an instant far ahead that a wrong clock reached.
func (o *Judge) judgeNothingAhead(j *jobState, limit instant) {
	last := &j.epochs[len(j.epochs)-1]
	if last.Until != 0 {
		return // it is paused
	}
	if last.From > limit {
		o.addJobViolation(2, j, "epoch %d begins as late as %v", last.Number, last.From)
	}
	for n, sh := range j.shards {
		if sh.epoch == last.Number && sh.watermark > limit {
			o.addJobViolation(2, j, "shard %d: the watermark is at %v, far ahead", n, sh.watermark)
		}
	}
}

// judgeReaped judges that records of expired incarnations, and served entries of the plan, are deleted.
func (o *Judge) judgeReaped(j *jobState) {
	for inc := range j.claims {
		if !o.alive(inc) {
			o.addJobViolation(5, j, "the claims of %s were not reaped after its session ended", inc)
		}
	}
	o.judgeServed(j)
	o.judgeRequestsServed(j)
	o.judgeEffective(j)
	if j.plan.Problem != "" {
		o.addJobViolation(5, j, "the plan has the problem %q", j.plan.Problem)
	}
}

// judgeServed judges that the plan lists pending re-runs and triggers only if a disabled shard has to make them, and
// more than one epoch only if one of these waits.
func (o *Judge) judgeServed(j *jobState) {
	p, reruns, triggers := j.plan, 0, 0
	p.Reruns.all(func(n int, _ run) {
		if !p.Disabled.has(n) {
			reruns++
		}
	})
	for _, t := range p.Triggers {
		if j.triggers[t.Number]&p.Disabled == 0 {
			triggers++
		}
	}
	if reruns+triggers > 0 || len(p.Epochs) > 1 && len(p.Reruns)+len(p.Triggers) == 0 {
		o.addJobViolation(5, j, "the plan still has %d pending re-runs, %d triggers and %d epochs", reruns, triggers, len(p.Epochs))
	}
}

// eligibleMembers returns the incarnations that may own shards, each with a count of 0, and whether others offer
// the job that are disabled or lack labels.
func (o *Judge) eligibleMembers(j *jobState) (eligible map[string]int, excluded bool) {
	eligible = map[string]int{}
	for inc, m := range o.members {
		if !o.alive(inc) || m.Draining || !j.isOfferedBy(m) {
			continue
		}
		if o.control.disables(m) || j.control.disables(m) {
			excluded = true
			if j.plan.Owners[inc] != 0 {
				o.addJobViolation(9, j, "%s is disabled but owns %d shards", inc, j.plan.Owners[inc].len())
			}
			continue
		}
		if def := j.newestDefinition(); !def.acceptsLabels(m) {
			excluded = true
			if j.plan.Owners[inc] != 0 {
				o.addJobViolation(10, j, "%s lacks labels of %v but owns %d shards", inc, def.RunOn, j.plan.Owners[inc].len())
			}
			continue
		}
		eligible[inc] = 0
	}
	return eligible, excluded
}

// isOfferedBy reports whether a member offers the job. A defined one is offered by its kind.
func (j *jobState) isOfferedBy(m *memberRecord) bool {
	if def := j.newestDefinition(); def.Kind != "" {
		return def.isOfKindOf(m)
	}
	return slices.Contains(m.Jobs, j.name)
}

// judgeEvenness judges that every shard has an owner, that no shard is frozen, and that each eligible member
// owns its share by weight, rounded down or up.
func (o *Judge) judgeEvenness(j *jobState, eligible map[string]int) {
	total := 0
	for i := range j.plan.Epochs {
		total = max(total, j.plan.Epochs[i].Def.Shards)
	}
	for n := range total {
		inc := j.plan.owner(n)
		if _, ok := eligible[inc]; !ok {
			o.addJobViolation(5, j, "shard %d has the owner %q, which is not eligible", n, inc)
			continue
		}
		eligible[inc]++
	}
	if j.plan.Frozen != 0 {
		o.addJobViolation(5, j, "%d shards are still frozen", j.plan.Frozen.len())
	}
	if len(eligible) == 0 {
		return
	}
	weights := 0
	for inc := range eligible {
		weights += max(o.members[inc].Weight, 1)
	}
	for inc, n := range eligible {
		share := total * max(o.members[inc].Weight, 1) // times the sum of weights
		if n < share/weights || n > (share+weights-1)/weights {
			o.addJobViolation(5, j, "%s owns %d of %d shards; its share by weight is %d/%d", inc, n, total, share, weights)
		}
	}
}

// JudgeCounts judges, after all runs have ended, that the counts in the records are those of the observed commits.
func (o *Judge) JudgeCounts() {
	for _, j := range o.jobs {
		if j.plan == nil {
			continue
		}
		sum := j.plan.Counts
		for _, c := range j.claims {
			sum = sum.plus(c.Counts)
		}
		o.compareCounts(j, sum)
	}
}

// compareCounts compares the sum of the counts in the records of a job with the observed commits.
func (o *Judge) compareCounts(j *jobState, sum tallies) {
	want := j.counts
	want.Succeeded, want.Failed = sum.Succeeded, sum.Failed
	if sum.Skipped >= want.Skipped-j.perhapsPassed {
		want.Skipped = min(want.Skipped, sum.Skipped)
	}
	if sum != want {
		o.addJobViolation(2, j, "the records count %+v; the commits show %+v", sum, want)
	}
	if sum.Succeeded+sum.Failed != j.ends {
		o.addJobViolation(2, j, "the records count %d successes and %d failures; the commits show %d ends", sum.Succeeded, sum.Failed, j.ends)
	}
	if failed := j.countFailedCalls(); sum.Failed < failed {
		o.addJobViolation(2, j, "the records count %d failures; %d calls failed whose ends are on record", sum.Failed, failed)
	}
	o.judgeRetried(j)
}
