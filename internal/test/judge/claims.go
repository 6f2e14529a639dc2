package judge

import (
	"time"

	"github.com/rota-dev/rota/registry"
)

// judgeClaimsRecord judges a write of an incarnation's record of a job.
func (o *Judge) judgeClaimsRecord(c *Commit, op *registry.Op, j *jobState, inc string) {
	rec, err := decode[claimsRecord](op.Value)
	if err != nil {
		o.addJobViolation(1, j, "claims of %s: %v", inc, err)
		return
	}
	old := j.claims[inc]
	if old == nil {
		old = &claimsRecord{}
	}
	j.claims[inc] = rec
	if s := o.session(inc); s == nil || c.Client != "" && s.client != c.Client {
		o.addJobViolation(1, j, "%s wrote the claims of %s, which is another client's", c.Client, inc)
	}
	retries := o.report.Retries
	old.Running.all(func(n int, r run) {
		if is, _ := rec.Running.of(n); is == r {
			return
		}
		if next, ok := rec.Reruns.of(n); ok && next == r.next(true) {
			o.judgeHandBack(j, n, inc, r)
			return
		}
		for _, after := range []runs{rec.Reruns, rec.Running} {
			if next, ok := after.of(n); ok && next.isRetryOf(r) {
				o.judgeRetry(j, n, inc, r, next)
				return
			}
		}
		o.addEnd(j, n, inc, r)
	})
	if retries = o.report.Retries - retries; retries != rec.Counts.Retried-old.Counts.Retried {
		o.addJobViolation(3, j, "%s counted %d retries and put %d on record", inc, rec.Counts.Retried-old.Counts.Retried, retries)
	}
	o.judgeGivenUp(j, inc, rec, rec.Counts.Lost-old.Counts.Lost) // before judgeCancelled: a re-run that no definition wants is lost, cancelled or not
	o.judgeCancelled(j, inc, rec)
	first := 0 // claims of fires at their first attempt
	rec.Running.all(func(n int, r run) {
		if was, _ := old.Running.of(n); was == r {
			return
		}
		o.judgeClaim(c, j, n, inc, r)
		if r.Attempt == 1 && r.Trigger == 0 {
			first++
		}
	})
	o.judgeWatermarks(j, inc, old, rec, first)
}

// judgeGivenUp judges that an owner counted pending re-runs as lost because the newest definition wants no
// re-runs.
func (o *Judge) judgeGivenUp(j *jobState, inc string, rec *claimsRecord, lost int) {
	if lost == 0 {
		return
	}
	if def := &j.plan.last().Def; def.OnCrash != countAsFailed || def.endsUntracked() {
		o.addJobViolation(3, j, "%s counted %d runs as lost, but the newest definition does not allow it", inc, lost)
	}
	given := 0
	for i := range rec.Watermarks {
		rec.Watermarks[i].Shards.all(func(n int) {
			sh := j.shard(n)
			if sh.orphan == nil || !sh.orphan.pending || sh.orphan.follow.NotBefore != 0 {
				return
			}
			if rec.Watermarks[i].covers(sh.orphan.next(false)) && j.plan.owner(n) == inc {
				given++
				sh.orphan = nil
				if j.plan.Disabled.has(n) {
					sh.free = instantOf(o.now) // until now the re-run held up the fires after it, as a disabled shard makes none
				}
			}
		})
	}
	if given != lost {
		o.addJobViolation(3, j, "%s counted %d runs as lost, but its watermarks passed %d pending re-runs", inc, lost, given)
	}
	o.report.Lost += given
	o.report.GivenUp += given
	j.counts.Lost += given
}

// judgeCancelled records the pending attempts at cancelled runs that the watermarks of an owner have passed. Each
// is counted as failed, which the totals show in the end.
func (o *Judge) judgeCancelled(j *jobState, inc string, rec *claimsRecord) {
	if j.plan == nil || len(j.plan.Cancels) == 0 {
		return
	}
	for i := range rec.Watermarks {
		rec.Watermarks[i].Shards.all(func(n int) {
			sh := j.shard(n)
			if sh.orphan == nil || !sh.orphan.pending || !j.plan.cancels(n, sh.orphan.run) || j.plan.owner(n) != inc {
				return
			}
			next := sh.orphan.follow
			if next == (run{}) {
				next = sh.orphan.next(false)
			}
			if r, _ := rec.Running.of(n); r == next {
				return // it was claimed, which judgeClaim judges
			}
			if rec.Watermarks[i].covers(next) {
				sh.orphan, sh.free = nil, instantOf(o.now)
				o.report.Cancelled++
				j.ends++
			}
		})
	}
}

// judgeHandBack judges a run that its owner handed back: the next claim of the shard must be its next attempt.
func (o *Judge) judgeHandBack(j *jobState, n int, inc string, r run) {
	if e := j.epoch(r.Epoch); e != nil && (e.Def.OnCrash == countAsFailed || e.Def.endsUntracked()) {
		o.addJobViolation(3, j, "shard %d: %s handed %s back, but the definition does not allow it", n, inc, r)
	}
	sh := j.shard(n)
	delete(sh.running, inc)
	sh.free = instantOf(o.now)
	sh.orphan = &orphan{run: r, fence: sh.fence, since: instantOf(o.now), pending: true, follow: r.next(true)}
	o.report.HandedBack++
}

// judgeRetry judges a failed run that its owner put on record to be made again as next.
func (o *Judge) judgeRetry(j *jobState, n int, inc string, r, next run) {
	e := j.epoch(r.Epoch)
	if e != nil && (e.Def.endsUntracked() || e.Def.Retry.Max >= 0 && r.Retries >= e.Def.Retry.Max) {
		o.addJobViolation(3, j, "shard %d: %s retries %s, but the definition allows %d retries", n, inc, r, e.Def.Retry.Max)
	}
	sh := j.shard(n)
	delete(sh.running, inc)
	sh.free = instantOf(o.now)
	sh.orphan = &orphan{run: r, fence: sh.fence, since: max(instantOf(o.now), next.NotBefore), pending: true, follow: next}
	o.report.Retries++
	j.counts.Retried++
}

// addEnd records the end of a run that a claims record no longer lists.
func (o *Judge) addEnd(j *jobState, n int, inc string, r run) {
	sh := j.shard(n)
	delete(sh.running, inc)
	sh.free = instantOf(o.now)
	if e, c := j.epoch(r.Epoch), sh.attempts[j.attempt(r)]; c != nil {
		c.recorded = true
		if e != nil && e.Def.endsUntracked() && c.returned != 0 {
			sh.free = c.returned
		}
	}
	if sh.orphan != nil && sh.orphan.run == r {
		sh.orphan = nil // its end was recorded before the session ended
	}
	o.report.Completed++
	j.ends++
}

// judgeClaim judges a run that a claims record newly lists.
func (o *Judge) judgeClaim(c *Commit, j *jobState, n int, inc string, r run) {
	sh := j.shard(n)
	s := o.session(inc)
	o.report.Claims++
	j.counts.Claimed++
	if s == nil || s.ended {
		o.addJobViolation(1, j, "shard %d: %s claimed %s after its session ended", n, inc, r)
		return
	}
	s.run = true
	for other, running := range sh.running {
		if other != inc && o.alive(other) {
			o.addJobViolation(1, j, "shard %d: %s claimed %s while %s runs %s", n, inc, r, other, running)
		}
	}
	key := j.attempt(r)
	o.judgeAfterDeletion(j, n, inc, r)
	if before := o.earlierClaim(j, sh, key); before != nil {
		o.addJobViolation(1, j, "shard %d: %s was claimed by %s with fence %d and again by %s with %d",
			n, r, before.incarnation, before.fence, inc, c.Rev.Seq)
	}
	if c.Rev.Seq <= sh.fence {
		o.addJobViolation(6, j, "shard %d: fence %d of %s follows %d", n, c.Rev.Seq, r, sh.fence)
	}
	if at, ok := sh.cancelled[key.life]; ok {
		o.addJobViolation(11, j, "shard %d: %s claimed %s, which a plan named as cancelled at %v", n, inc, r, at)
	}
	sh.attempts[key], sh.resets = &claimState{life: key.life, incarnation: inc, session: s, at: instantOf(o.now), fence: c.Rev.Seq, fire: r.Fire}, max(sh.resets, key.resets)
	if e := j.epoch(r.Epoch); e != nil {
		sh.attempts[key].pool = e.Def.Pool
	}
	sh.running[inc], sh.fence = r, c.Rev.Seq
	o.judgeOrder(j, n, r)
	o.judgeByPlan(j, n, inc, r)
}

// earlierClaim returns an earlier claim of the same attempt, nil if there is none. A claim from before a
// reset, or before the job was forgotten, counts only in fleets without wrong clocks, and not for triggers, whose
// numbers begin anew then, nor of an earlier creation of a defined job.
func (o *Judge) earlierClaim(j *jobState, sh *shardState, key attempt) *claimState {
	before, first := sh.attempts[key], 0
	if j.defined.isKnown {
		first = j.firstLife
	}
	for ; before == nil && !o.wrongClocks && key.trigger == 0 && key.resets > first; before = sh.attempts[key] {
		key.resets--
	}
	return before
}

// judgeOrder judges that pending re-runs come first, and that a later attempt follows a lost one.
func (o *Judge) judgeOrder(j *jobState, n int, r run) {
	sh := j.shard(n)
	switch lost := sh.orphan; {
	case lost != nil:
		if r.work() != lost.work() || r.Attempt != lost.Attempt+1 {
			o.addJobViolation(3, j, "shard %d: %s was claimed before the re-run of %s, whose session ended", n, r, lost.run)
			return
		}
		if early := lost.follow.NotBefore - o.latest(); early > 0 && !o.wrongClocks {
			o.addJobViolation(3, j, "shard %d: %s was claimed %v before its time", n, r, early.duration())
		}
		sh.orphan = nil
		o.report.Reruns++
		o.report.addRerunDelay(instantOf(o.now) - max(lost.since, sh.enabled))
	case r.Attempt != 1:
		o.addJobViolation(3, j, "shard %d: %s was claimed, but the attempt before it was not lost", n, r)
	}
}

// judgeByPlan judges a claimed run by the plan: owner, epoch, total and schedule.
func (o *Judge) judgeByPlan(j *jobState, n int, inc string, r run) {
	if j.plan == nil || j.plan.owner(n) != inc {
		o.addJobViolation(4, j, "shard %d: %s claimed %s but does not own the shard", n, inc, r)
	}
	if j.plan != nil && (j.plan.Disabled | j.plan.Frozen).has(n) {
		o.addJobViolation(9, j, "shard %d: %s claimed %s, but the plan shows the shard as disabled or frozen", n, inc, r)
	}
	e := j.epoch(r.Epoch)
	if e == nil {
		o.addJobViolation(8, j, "shard %d: %s was claimed, but the plan has had no such epoch", n, r)
		return
	}
	if n >= e.Def.Shards {
		o.addJobViolation(8, j, "shard %d: %s was claimed, but its epoch has %d shards", n, r, e.Def.Shards)
	}
	if w := j.works[j.life(r)]; w == nil {
		j.works[j.life(r)] = &workState{epoch: r.Epoch, total: e.Def.Shards}
	} else if w.epoch != r.Epoch || w.total != e.Def.Shards {
		o.addJobViolation(8, j, "shard %d: %s has a total of %d; other shards claimed it in epoch %d with a total of %d",
			n, r, e.Def.Shards, w.epoch, w.total)
	}
	if r.Trigger > 0 {
		o.judgeTriggered(j, n, r)
		return
	}
	if r.Attempt > 1 {
		return // its first attempt was judged
	}
	if o.latest() < r.Fire {
		o.addJobViolation(2, j, "shard %d: %s was claimed %v before its time", n, r, (r.Fire - instantOf(o.now)).duration())
	}
	if e.delay > 0 {
		o.judgeDelay(j, n, e, r)
	} else if due, err := e.fires(r.Fire-1, r.Fire); err != nil || due != 1 {
		o.addJobViolation(2, j, "shard %d: %s was claimed, but the schedule has no such fire (error: %v)", n, r, err)
	}
	if e.released != nil {
		return // it is due when it is released
	}
	if !r.Missed {
		o.report.addLateness(instantOf(o.now) - r.Fire)
	} else {
		o.report.Missed++
	}
}

// judgeDelay judges that a fire follows the end of the shard's last run by the delay of its epoch.
func (o *Judge) judgeDelay(j *jobState, n int, e *epoch, r run) {
	o.report.Delays++
	sh := j.shard(n)
	ended := e.From - 1
	if sh.epoch == e.Number {
		ended = max(ended, sh.watermark)
	}
	after := r.Fire.add(-e.delay)
	if o.endsNow(sh) && after >= ended && after <= o.latest() {
		return
	}
	if after != ended {
		o.addJobViolation(2, j, "shard %d: %s was claimed, %v after the last run had ended, but the delay is %v", n, r, (r.Fire - ended).duration(), e.delay)
	}
}

// endsNow reports whether the commit records the end of a run of a shard.
func (o *Judge) endsNow(sh *shardState) bool { return sh.free == instantOf(o.now) }

// judgeWatermarks judges how a claims record raises watermarks: each fire that a watermark passes must be
// claimed, or skipped by a rule and counted.
func (o *Judge) judgeWatermarks(j *jobState, inc string, old, rec *claimsRecord, first int) {
	passed, skipped := 0, rec.Counts.Skipped-old.Counts.Skipped
	perhaps := 0 // fires of disabled shards that may have been skipped
	for _, g := range rec.Watermarks {
		g.Shards.all(func(n int) {
			sh := j.shard(n)
			if g.Epoch < sh.epoch || g.Epoch == sh.epoch && g.Fire <= sh.watermark {
				return
			}
			if e := j.epoch(g.Epoch); e != nil && e.delay > 0 && o.endsNow(sh) {
				if r, ok := rec.Running.of(n); ok && r.Trigger == 0 && r.Attempt == 1 && r.Epoch == g.Epoch && r.Fire == g.Fire {
					passed++
				} else if j.plan.Disabled.has(n) {
					due, _ := j.countDue(n, sh.epoch, sh.watermark, g.Epoch, g.Fire) // at most one of each epoch
					perhaps += due
				}
				sh.epoch, sh.watermark = g.Epoch, g.Fire
				return
			}
			due, err := j.countDue(n, sh.epoch, sh.watermark, g.Epoch, g.Fire)
			if err != nil {
				o.addJobViolation(2, j, "shard %d: %v", n, err)
			}
			if due > 0 {
				o.judgeLateClaim(j, n, inc, g.Epoch)
			}
			if lost := sh.orphan; lost != nil && lost.Trigger == 0 {
				o.addJobViolation(3, j, "shard %d: %s passed %d fires before the re-run of %s, whose session ended", n, inc, due, lost.run)
			}
			claimed := 0
			if r, ok := rec.Running.of(n); ok && r.Trigger == 0 && r.Attempt == 1 && r.Epoch == g.Epoch && r.Fire == g.Fire {
				claimed = 1
			}
			was, ran := old.Running.of(n)
			if now, _ := rec.Running.of(n); ran && now != was {
				o.judgeOverlapped(j, n, g, due, claimed)
			} else {
				o.judgeSkipped(j, n, g, due, claimed)
			}
			passed += due
			sh.epoch, sh.watermark = g.Epoch, g.Fire
		})
	}
	if passed > first+skipped || passed+perhaps < first+skipped {
		o.addJobViolation(2, j, "the watermarks of %s passed %d fires, of which it claimed %d and counted %d as skipped", inc, passed, first, skipped)
	}
	o.report.Skipped += skipped
	j.counts.Skipped += skipped
}

// countDue returns how many fires a shard has after one epoch and instant, through another.
func (j *jobState) countDue(n, gen int, after instant, toGen int, through instant) (int, error) {
	sum := 0
	for i := range j.epochs {
		e := &j.epochs[i]
		if e.Number < gen || e.Number > toGen || n >= e.Def.Shards {
			continue
		}
		from, to := instant(0), through
		if e.Number == gen {
			from = after
		}
		if e.Number < toGen {
			to = e.Until - 1
		}
		due, err := e.fires(from, to)
		if err != nil {
			return 0, err
		}
		sum += due
	}
	return sum, nil
}

// judgeOverlapped judges the fires that a watermark passes in the commit that records the end of a run of the shard.
// Those that came due during the run may be skipped, if the definition wants that.
func (o *Judge) judgeOverlapped(j *jobState, n int, g watermarkGroup, due, claimed int) {
	if e := j.epoch(g.Epoch); e != nil && e.Def.OnOverlap == "skip" {
		o.report.SkippedOverlap += due - claimed
		return
	}
	o.judgeSkipped(j, n, g, due, claimed)
}

// judgeSkipped judges by the disabled shards and the misfire policy that the watermark of a shard passed due
// fires, the last of them g.Fire, of which claimed were claimed.
func (o *Judge) judgeSkipped(j *jobState, n int, g watermarkGroup, due, claimed int) {
	e := j.epoch(g.Epoch)
	if e == nil || due <= claimed {
		return
	}
	if j.plan != nil && j.plan.Disabled.has(n) {
		o.report.SkippedDisabled += due
		return
	}
	now := o.latest()
	if e.Def.OnMisfire == "skip missed" {
		if claimed == 0 && now <= g.Fire.add(misfireGrace) {
			o.addJobViolation(2, j, "shard %d: fire %v was skipped as missed only %v after its time", n, g.Fire, (now - g.Fire).duration())
		}
		return
	}
	sh := j.shard(n)
	expired := 0 // at most so many fires have been owed for longer than the catch-up window
	if window := time.Duration(e.Def.CatchupWindow); window > 0 {
		expired, _ = j.countDue(n, sh.epoch, sh.watermark, g.Epoch, now.add(-window))
		o.report.SkippedExpired += min(expired, due-claimed)
	}
	if claimed == 0 && due <= expired {
		return
	}
	if claimed == 0 {
		o.addJobViolation(2, j, "shard %d: %d fires through %v were skipped and none was claimed, but the misfire policy is %q", n, due, g.Fire, e.Def.OnMisfire)
		return
	}
	if sh.epoch != g.Epoch {
		return // fires of an earlier epoch are counted by its own policy
	}
	all, err := e.fires(sh.watermark, now)
	if err == nil && due-claimed > max(0, all-e.Def.limit())+expired {
		o.addJobViolation(2, j, "shard %d: %d of %d fires were skipped, but the misfire policy is %q", n, due-claimed, all, e.Def.OnMisfire)
	}
}

// misfireGrace is the longest delay with which a fire counts as on time.
const misfireGrace = 1e9 // 1 s
