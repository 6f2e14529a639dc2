package judge

import (
	"slices"
	"time"
)

// span is a span of time, with both ends.
type span struct{ from, to instant }

// Disturb suspends the promises about time for a client, or for all if client is empty, for d from now on.
func (o *Judge) Disturb(client string, d time.Duration) {
	now := instantOf(time.Now())
	o.disturbances[client] = append(o.disturbances[client], span{now, now.add(d)})
}

// CopyDisturbances copies the disturbances of another judge.
func (o *Judge) CopyDisturbances(other *Judge) { o.disturbances = other.disturbances }

// isUndisturbed reports whether a client was not disturbed at any instant of a span.
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

// judgeLateClaim judges that a watermark passes due fires of a shard only now.
func (o *Judge) judgeLateClaim(j *jobState, n int, inc string, toGen int) {
	sh := j.shard(n)
	e, fire, ok := j.firstDue(n, sh.epoch, sh.watermark, toGen)
	if !ok {
		return
	}
	held := max(sh.owned, sh.free, sh.unfrozen, sh.enabled, e.seen, j.resumed)
	if e.grown.from <= fire {
		held = max(held, e.grown.to) // only then the epoch held it
	}
	if held > fire || j.plan.Frozen.has(n) || !o.isUndisturbed(o.session(inc).client, span{fire.add(-time.Second), fire.add(o.maxDelay)}) {
		return
	}
	if e.Def.Pool != "" {
		p := o.pool(e.Def.Pool)
		p.waits = append(p.waits, poolWait{span{fire, instantOf(o.now)}, j, n})
		return
	}
	o.report.Judged++
	if instantOf(o.now) <= fire.add(o.maxDelay) {
		return
	}
	o.addJobViolation(7, j, "shard %d: fire %v of epoch %d was claimed or skipped only now by %s, which owns the shard since %v; no run held it up since %v",
		n, fire, e.Number, inc, sh.owned, sh.free)
}

// firstDue returns the first fire of a shard after an epoch and instant.
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
		if e.released != nil {
			if e.Number != gen {
				after = 0
			}
			if i := slices.IndexFunc(*e.released, func(r release) bool { return r.epoch == e.Number && r.At > after }); i >= 0 {
				return e, (*e.released)[i].due, true
			}
			continue
		}
		fire := last.add(e.delay)
		if e.at != nil {
			i := slices.IndexFunc(e.at, func(at instant) bool { return at > last })
			if i < 0 {
				continue
			}
			fire = e.at[i]
		} else if e.delay == 0 {
			fire = (last/instant(e.every) + 1) * instant(e.every)
		}
		if e.Until == 0 || fire < e.Until {
			return e, fire, true
		}
	}
	return nil, 0, false
}

// judgeLateFailover judges that a lost run of an incarnation becomes pending, or is counted, only now.
func (o *Judge) judgeLateFailover(j *jobState, n int, inc string, lost *orphan) {
	now := instantOf(o.now)
	if o.leader.since > lost.since || !o.isUndisturbed(o.leader.client, span{lost.since.add(-time.Second), now}) {
		return
	}
	o.report.Judged++
	if now <= lost.since.add(o.graceOf(inc)+o.maxDelay) {
		return
	}
	o.addJobViolation(7, j, "shard %d: the session that ran %s ended at %v, but the leader %s failed it over only now",
		n, lost.run, lost.since, o.leader.client)
}
