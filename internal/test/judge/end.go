package judge

import (
	"slices"
	"time"
)

// Settled judges a fleet after which nothing has befallen for a while, at a moment when
// no fire has been due for slack.
func (o *Judge) JudgeSettled(now time.Time, slack time.Duration) {
	o.now = now
	for _, j := range o.jobs {
		if j.plan == nil {
			continue
		}
		if able, barred := o.eligibleMembers(j); len(able) > 0 || !barred {
			o.judgeNothingPending(j, instantOf(now.Add(-slack)))
			o.judgeNothingAhead(j, instantOf(now.Add(slack)))
			o.judgeEvenness(j, able)
			o.judgeReaped(j)
		} else if len(j.plan.Owners) > 0 || j.plan.Problem == "" {
			o.addJobViolation(9, j, "all who may own its shards are disabled or lack labels; %d own some, and the plan has the problem %q", len(j.plan.Owners), j.plan.Problem)
		}
		if j.plan.Resets != j.control.Resets {
			o.addJobViolation(9, j, "operators have asked for %d resets; the plan has %d", j.control.Resets, j.plan.Resets)
		}
		if j.plan.Disabled != j.control.Shards {
			o.addJobViolation(9, j, "operators have disabled the shards %b; the plan shows %b", j.control.Shards, j.plan.Disabled)
		}
	}
	for inc := range o.members {
		if !o.alive(inc) {
			o.addJobViolation(5, nil, "the member record of %s, whose session has ended, was not removed", inc)
		}
	}
}

// Settles reports whether Settled would find nothing.
func (o *Judge) IsSettled(now time.Time, slack time.Duration) bool {
	kept := o.report
	o.report = &Report{}
	o.JudgeSettled(now, slack)
	settles := len(o.report.Broken) == 0
	o.report = kept
	return settles
}

// nothingOwed judges that all that fell due has been claimed or skipped.
func (o *Judge) judgeNothingPending(j *jobState, due instant) {
	for n, sh := range j.shards {
		if sh.orphan != nil {
			o.addJobViolation(3, j, "shard %d: %s, in flight at %v, was never claimed again", n, sh.orphan.run, sh.orphan.since)
		}
		last := j.epochs[len(j.epochs)-1].Number
		missing, err := j.countDue(n, sh.epoch, sh.watermark, last, due)
		if err != nil || missing > 0 {
			o.addJobViolation(2, j, "shard %d: %d fires after %v of epoch %d were neither claimed nor skipped (%v)",
				n, missing, sh.watermark, sh.epoch, err)
		}
		all, _ := j.countDue(n, 0, 0, last, due)
		o.report.Due += all
	}
	for number, left := range j.triggers {
		o.addJobViolation(2, j, "trigger %d was never claimed for %d shards", number, left.len())
	}
}

// Reported judges, when all clocks are right again, that the plan names a problem where a shard
// waits for a time that a wrong clock has reached.
func (o *Judge) JudgeProblems(now time.Time, far time.Duration) {
	o.now = now
	limit := instantOf(now.Add(far))
	for _, j := range o.jobs {
		if j.plan == nil || j.plan.last().Until != 0 || j.plan.Problem != "" {
			continue
		}
		if last := j.plan.last(); last.From > limit && len(j.plan.Owners) > 0 {
			o.addJobViolation(2, j, "epoch %d begins at %v only, and the plan names no problem", last.Number, last.From)
		}
		for n, sh := range j.shards {
			if sh.epoch == j.plan.last().Number && sh.watermark > limit && j.plan.owner(n) != "" {
				o.addJobViolation(2, j, "shard %d: fires up to %v count as claimed or skipped, and the plan names no problem", n, sh.watermark)
			}
		}
	}
}

// nothingAhead judges that no shard waits for a time that is far ahead, because a clock was
// wrong that is right again.
func (o *Judge) judgeNothingAhead(j *jobState, limit instant) {
	last := &j.epochs[len(j.epochs)-1]
	if last.Until != 0 {
		return // it is paused
	}
	if last.From > limit {
		o.addJobViolation(2, j, "epoch %d begins at %v only", last.Number, last.From)
	}
	for n, sh := range j.shards {
		if sh.epoch == last.Number && sh.watermark > limit {
			o.addJobViolation(2, j, "shard %d: fires up to %v count as claimed or skipped", n, sh.watermark)
		}
	}
}

// tidy judges that what has been served, and what the dead left, has been cleared away.
func (o *Judge) judgeReaped(j *jobState) {
	for inc := range j.claims {
		if !o.alive(inc) {
			o.addJobViolation(5, j, "the claims of %s, whose session has ended, were not removed", inc)
		}
	}
	if p := j.plan; len(p.Reruns)+len(p.Triggers) > 0 || len(p.Epochs) != 1 {
		o.addJobViolation(5, j, "the plan still has %d pending re-runs, %d triggers and %d generations", len(p.Reruns), len(p.Triggers), len(p.Epochs))
	}
	if j.plan.Problem != "" {
		o.addJobViolation(5, j, "the plan has the problem %q", j.plan.Problem)
	}
}

// able returns those who may have shards, with none yet, and whether there are others, who
// are disabled or lack labels.
func (o *Judge) eligibleMembers(j *jobState) (able map[string]int, barred bool) {
	able = map[string]int{}
	for inc, m := range o.members {
		if !o.alive(inc) || m.Draining || !slices.Contains(m.Jobs, j.name) {
			continue
		}
		if o.control.disables(m) || j.control.disables(m) {
			barred = true
			if j.plan.Owners[inc] != 0 {
				o.addJobViolation(9, j, "%s is disabled and owns %d shards", inc, j.plan.Owners[inc].len())
			}
			continue
		}
		if def := j.newestDefinition(); !def.acceptsLabels(m) {
			barred = true
			if j.plan.Owners[inc] != 0 {
				o.addJobViolation(10, j, "%s lacks labels of %v and owns %d shards", inc, def.RunOn, j.plan.Owners[inc].len())
			}
			continue
		}
		able[inc] = 0
	}
	return able, barred
}

// evenlyOwned judges that every shard has an owner, that none moves, and that everybody who
// may have shards has its share by weight, rounded down or up.
func (o *Judge) judgeEvenness(j *jobState, able map[string]int) {
	total := 0
	for i := range j.plan.Epochs {
		total = max(total, j.plan.Epochs[i].Def.Shards)
	}
	for n := range total {
		inc := j.plan.owner(n)
		if _, ok := able[inc]; !ok {
			o.addJobViolation(5, j, "shard %d has the owner %q, who is none of those who may", n, inc)
			continue
		}
		able[inc]++
	}
	if j.plan.Frozen != 0 {
		o.addJobViolation(5, j, "%d shards are still moving", j.plan.Frozen.len())
	}
	if len(able) == 0 {
		return
	}
	weights := 0
	for inc := range able {
		weights += max(o.members[inc].Weight, 1)
	}
	for inc, n := range able {
		share := total * max(o.members[inc].Weight, 1) // of so many parts as there are weights
		if n < share/weights || n > (share+weights-1)/weights {
			o.addJobViolation(5, j, "%s has %d of %d shards; its share is %d in %d", inc, n, total, share, weights)
		}
	}
}

// Counted judges, when nothing runs any more, that the records' own counts are those of
// what has happened.
func (o *Judge) JudgeCounts() {
	for _, j := range o.jobs {
		if j.plan == nil {
			continue
		}
		sum := j.plan.Counts
		for _, c := range j.claims {
			sum = sum.plus(c.Counts)
		}
		want := j.counts
		want.Succeeded, want.Failed = sum.Succeeded, sum.Failed
		if sum != want {
			o.addJobViolation(2, j, "the records count %+v; it was %+v", sum, want)
		}
		if sum.Succeeded+sum.Failed != j.ends {
			o.addJobViolation(2, j, "the records count %d and %d ends; there were %d", sum.Succeeded, sum.Failed, j.ends)
		}
	}
}
