package judge

import "time"

// span is a stretch of time.
type span struct{ from, to instant }

// Disturb says that a client, or all of them if client is empty, is in trouble for d from
// now on.
func (o *Judge) Disturb(client string, d time.Duration) {
	now := instantOf(time.Now())
	o.disturbances[client] = append(o.disturbances[client], span{now, now.add(d)})
}

// DisturbedLike takes over what another judge was told by Disturb.
func (o *Judge) CopyDisturbances(other *Judge) { o.disturbances = other.disturbances }

// undisturbed reports whether nothing befell a client at any moment of a span.
func (o *Judge) isUndisturbed(client string, s span) bool {
	for _, of := range []string{client, ""} {
		for _, t := range o.disturbances[of] {
			if t.from <= s.to && s.from <= t.to {
				return false
			}
		}
	}
	return true
}

// late judges that a shard's fires, of which the first after what is settled was due, are
// claimed or skipped only now.
func (o *Judge) judgeLateClaim(j *jobState, n int, inc string, toGen int) {
	sh := j.shard(n)
	e, fire, ok := j.firstDue(n, sh.epoch, sh.watermark, toGen)
	if !ok {
		return
	}
	held := max(sh.owned, sh.free, sh.unfrozen, sh.enabled, e.seen, j.resumed)
	if e.grown.from <= fire {
		held = max(held, e.grown.to) // until then it was not known to be owed
	}
	if held > fire || j.plan.Frozen.has(n) || !o.isUndisturbed(o.session(inc).client, span{fire.add(-time.Second), fire.add(o.maxDelay)}) {
		return
	}
	o.report.Judged++
	if instantOf(o.now) <= fire.add(o.maxDelay) {
		return
	}
	o.addJobViolation(7, j, "shard %d: fire %v of epoch %d was passed over until now by %s, which owns it since %v and was free since %v",
		n, fire, e.Number, inc, sh.owned, sh.free)
}

// firstDue returns the first fire of a shard after a point of its history.
func (j *jobState) firstDue(n, gen int, after instant, toGen int) (*epoch, instant, bool) {
	for i := range j.epochs {
		e := &j.epochs[i]
		if e.Number < gen || e.Number > toGen || n >= e.Def.Shards {
			continue
		}
		if e.err != nil {
			return nil, 0, false
		}
		last := e.From - 1
		if e.Number == gen {
			last = max(last, after)
		}
		fire := (last/instant(e.every) + 1) * instant(e.every)
		if e.Until == 0 || fire < e.Until {
			return e, fire, true
		}
	}
	return nil, 0, false
}

// failedOverLate judges that a lost run of an incarnation is owed or counted only now.
func (o *Judge) judgeLateFailover(j *jobState, n int, inc string, lost *orphan) {
	now := instantOf(o.now)
	if o.leader.since > lost.since || !o.isUndisturbed(o.leader.client, span{lost.since.add(-time.Second), now}) {
		return
	}
	o.report.Judged++
	if now <= lost.since.add(o.graceOf(inc)+o.maxDelay) {
		return
	}
	o.addJobViolation(7, j, "shard %d: the session of %s ended at %v, and its leader %s failed it over only now",
		n, lost.run, lost.since, o.leader.client)
}
