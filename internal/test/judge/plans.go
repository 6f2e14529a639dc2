package judge

import (
	"reflect"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
)

// judgePlan judges a write of a plan.
func (o *Judge) judgePlan(c *Commit, op *registry.Op, j *jobState) {
	o.judgeTerm(c, j)
	p, err := decode[planRecord](op.Value)
	if err != nil {
		o.addJobViolation(2, j, "plan: %v", err)
		return
	}
	if len(p.Epochs) == 0 {
		o.addJobViolation(8, j, "the plan has no definition")
		return
	}
	j.name = p.Job
	o.judgeLife(j, p)
	if j.plan != nil {
		if j.plan.Paused && !p.Paused {
			j.resumed = instantOf(o.now)
		}
		(j.plan.Frozen &^ p.Frozen).all(func(n int) { j.shard(n).unfrozen = instantOf(o.now) })
		(j.plan.Disabled &^ p.Disabled).all(func(n int) { j.shard(n).enabled = instantOf(o.now) })
	}
	o.report.Plans++
	o.judgeResets(j, p)
	o.judgeOwners(c, j, p)
	o.judgeEpochs(j, p)
	o.addTriggers(j, p)
	o.judgeReleases(j, p)
	o.judgeParallel(j, p)
	j.addCancels(o, p)
	j.plan, j.inForce = p, op.Value
}

// judgeResets judges the number of resets of a plan.
func (o *Judge) judgeResets(j *jobState, p *planRecord) {
	before := j.resetsBefore
	if j.plan != nil {
		before = j.plan.Resets
	}
	switch {
	case j.plan != nil && p.Resets < before || p.Resets > max(before, j.control.Resets):
		o.addJobViolation(9, j, "the plan has %d resets after %d, but operators asked for %d", p.Resets, before, j.control.Resets)
	case j.plan != nil && p.Resets > before && p.last().Number == j.plan.last().Number:
		o.addJobViolation(9, j, "the plan has %d resets after %d, but no new epoch", p.Resets, before)
	case j.plan != nil:
		o.report.Resets += p.Resets - before
	}
}

// judgeTerm judges the writer of a plan, and its condition on the term.
func (o *Judge) judgeTerm(c *Commit, j *jobState) {
	if c.Client == "" {
		return // its conditions are unknown too
	}
	key := registry.Key(o.group + "election/leader")
	i := slices.IndexFunc(c.If, func(c registry.Cond) bool { return c.Kind == registry.CondAt && c.Key == key })
	switch {
	case i < 0:
		o.addJobViolation(6, j, "%s wrote the plan without a condition on its term", c.Client)
	case c.If[i].Rev.Seq != o.leader.term:
		o.addJobViolation(6, j, "%s wrote the plan in term %d, but the term is %d", c.Client, c.If[i].Rev.Seq, o.leader.term)
	case c.Client != o.leader.client:
		o.addJobViolation(6, j, "%s wrote the plan in the term of %s", c.Client, o.leader.client)
	}
}

// judgeOwners judges the owners in p by those in the plan before.
func (o *Judge) judgeOwners(c *Commit, j *jobState, p *planRecord) {
	var assigned shards
	for inc, set := range p.Owners {
		if set&assigned != 0 {
			o.addJobViolation(1, j, "the plan assigns shards to %s that it assigns to another member too", inc)
		}
		assigned |= set
		set.all(func(n int) {
			sh := j.shard(n)
			for other, r := range sh.running {
				if other != inc && o.alive(other) {
					o.addJobViolation(4, j, "shard %d was assigned to %s while %s, whose session is alive, runs %s", n, inc, other, r)
				}
			}
			if sh.owner == inc {
				return
			}
			if m := o.members[inc]; m != nil && !j.acceptsLabels(p, m) {
				o.addJobViolation(10, j, "shard %d was assigned to %s, which lacks labels of %v", n, inc, p.last().Def.RunOn)
			}
			switch {
			case sh.owner == "":
				o.report.Assigned++
			case o.alive(sh.owner):
				o.report.Moves++
			case nameOf(sh.owner) == nameOf(inc):
				o.report.Failovers++
				if o.graceOf(sh.owner) > 0 {
					o.report.KeptByName++
				}
			default:
				o.report.Failovers++
				o.judgeGrace(c, j, p, n, sh.owner, inc)
			}
			sh.owner, sh.owned = inc, instantOf(o.now)
		})
	}
	for n, sh := range j.shards {
		if assigned.has(n) {
			continue
		}
		sh.owner = ""
		for other, r := range sh.running {
			if o.alive(other) {
				o.addJobViolation(4, j, "shard %d lost its owner while %s, whose session is alive, runs %s", n, other, r)
			}
		}
	}
}

// acceptsLabels reports whether a member has the labels, and the kind, of the newest definition of a plan, of the one before if this
// write begins an epoch, or of a stored one of the same or a higher revision: the leader planned by one of them.
func (j *jobState) acceptsLabels(p *planRecord, m *memberRecord) bool {
	if j.plan != nil && j.plan.last().Number < p.last().Number && j.plan.last().Def.acceptsLabels(m) {
		return true
	}
	return p.last().Def.acceptsLabels(m) || j.sources.contain(func(d *definition) bool {
		return d.Revision >= p.last().Def.Revision && d.acceptsLabels(m)
	})
}

// mayRefuseLabels reports whether a member lacks labels of any of these definitions.
func (j *jobState) mayRefuseLabels(p *planRecord, m *memberRecord) bool {
	return !p.last().Def.acceptsLabels(m) || j.sources.contain(func(d *definition) bool {
		return d.Revision >= p.last().Def.Revision && !d.acceptsLabels(m)
	})
}

// newestDefinition returns the definition whose labels hold in the end.
func (j *jobState) newestDefinition() *definition {
	def := &j.plan.last().Def
	if newest, err := effective(j.stored, j.control.Override); err == nil && newest.Revision >= def.Revision {
		return newest
	}
	return def
}

// addDefinition records a stored definition.
func (o *Judge) addDefinition(op *registry.Op, j *jobState) {
	def, err := decode[definition](op.Value)
	if err != nil {
		o.addJobViolation(8, j, "definition: %v", err)
		return
	}
	if def.Kind != "" {
		o.judgeWake(op, j, def)
	}
	j.stored = op.Value
	j.sources.addDefinition(op.Value)
}

// judgeGrace judges by the restart grace that a shard is reassigned from an expired incarnation to another
// instance.
func (o *Judge) judgeGrace(c *Commit, j *jobState, p *planRecord, n int, from, to string) {
	s := o.session(from)
	if c.Client == "" || s == nil || !o.now.Before(s.end.Add(o.graceOf(from))) {
		return
	}
	if !slices.ContainsFunc(c.If, func(c registry.Cond) bool { return c.Kind == registry.CondDead && c.Session == sessionOf(from) }) {
		return // decided while the session was alive
	}
	if j.plan.owner(n) != from {
		return // it had no owner meanwhile: the job had fewer shards
	}
	if !o.joined[nameOf(from)].Before(s.end) {
		return // the instance returned, and its new shards are planned afresh
	}
	if m := o.members[from]; m != nil && j.mayRefuseLabels(p, m) {
		return // the instance may not own the shard
	}
	if o.excluded[exclusion{j.segment, from}] || o.excluded[exclusion{groupSegment, from}] {
		return // it is disabled, or was: the leader may not have observed yet that it no longer is
	}
	o.addJobViolation(5, j, "shard %d was reassigned from %s, whose session ended at %v, to %s within the restart grace", n, from, instantOf(s.end), to)
}

// graceOf returns the restart grace of an incarnation.
func (o *Judge) graceOf(inc string) time.Duration {
	if m := o.members[inc]; m != nil {
		return time.Duration(m.Grace)
	}
	return 0
}

// judgeEpochs records the epochs of a plan, and judges their order.
func (o *Judge) judgeEpochs(j *jobState, p *planRecord) {
	for i := range p.Epochs {
		e := &p.Epochs[i]
		if known := j.epoch(e.Number); known != nil {
			if known.Until != 0 && e.Until > known.Until {
				known.grown = span{known.Until, instantOf(o.now)}
			}
			known.Until = e.Until
			if known.From != e.From || !reflect.DeepEqual(known.Def, e.Def) {
				o.addJobViolation(8, j, "epoch %d changed its begin or its definition", e.Number)
			}
			continue
		}
		if n := len(j.epochs); n > 0 {
			last := &j.epochs[n-1]
			if e.Number <= last.Number || last.Until == 0 || last.Until > e.From {
				o.addJobViolation(8, j, "epoch %d, from %v, overlaps with epoch %d, from %v until %v, or has no higher number",
					e.Number, e.From, last.Number, last.From, last.Until)
			}
			o.report.Epochs++
		}
		e.seen, e.life = instantOf(o.now), j.firstLife+p.Resets
		o.judgeSource(j, e)
		if e.Def.followedJobs() != nil {
			e.released = &j.released
		} else {
			e.setFires()
		}
		j.epochs = append(j.epochs, *e)
	}
}

// addTriggers records the new triggers of a plan.
func (o *Judge) addTriggers(j *jobState, p *planRecord) {
	for _, t := range p.Triggers {
		if j.plan != nil && slices.ContainsFunc(j.plan.Triggers, func(old trigger) bool { return old.Number == t.Number }) {
			continue
		}
		o.judgeRequest(j, t)
		e := j.epoch(t.Epoch)
		if e == nil {
			o.addJobViolation(8, j, "trigger %d is of epoch %d, which does not exist", t.Number, t.Epoch)
			continue
		}
		set := firstShards(e.Def.Shards)
		if t.Shards != nil {
			set &= *t.Shards
		}
		j.triggers[t.Number], j.requests[t.Number], j.lastTrigger = set, t, max(j.lastTrigger, t.Number)
		o.report.Triggers++
	}
}

// judgeReap judges the deletion of an incarnation's claims record.
func (o *Judge) judgeReap(b reaping) {
	if b.claims == nil {
		return
	}
	j := b.job
	delete(j.claims, b.incarnation)
	if j.plan == nil { // the job was forgotten, so no plan adds the counts
		j.counts = j.counts.minus(b.claims.Counts)
		j.ends -= b.claims.Counts.Succeeded + b.claims.Counts.Failed
	}
	b.claims.Running.all(func(n int, r run) {
		sh := j.shard(n)
		delete(sh.running, b.incarnation)
		if o.alive(b.incarnation) {
			o.addJobViolation(3, j, "shard %d: the claims record of %s was deleted while its session is alive and runs %s", n, b.incarnation, r)
		}
	})
}

// judgeFailover judges the outcome of each run in flight in a failover: pending at the next attempt, or counted
// as lost if the definition wants that, or as unknown if ends of runs are not tracked.
func (o *Judge) judgeFailover(reaped []reaping, before map[*jobState]tallies) {
	want, known := map[*jobState]tallies{}, map[*jobState]int{}
	for j := range before {
		want[j] = tallies{}
	}
	for _, b := range reaped {
		if b.claims == nil {
			continue
		}
		known[b.job] += b.claims.Counts.Lost // counted by their owner
		b.claims.Running.all(func(n int, r run) {
			want[b.job] = want[b.job].plus(o.judgeInFlight(b.job, n, b.incarnation, r))
		})
		b.claims.Reruns.all(func(n int, r run) { o.judgeFollowing(b.job, n, b.incarnation, r) })
	}
	for j, n := range want {
		if j.plan == nil {
			continue
		}
		if counted := j.plan.Counts.Lost - before[j].Lost - known[j]; counted != n.Lost {
			o.addJobViolation(3, j, "the failover counted %d runs as lost, want %d", counted, n.Lost)
		}
		if counted := j.plan.Counts.Unknown - before[j].Unknown; counted != n.Unknown {
			o.addJobViolation(3, j, "the failover counted %d runs as unknown, want %d", counted, n.Unknown)
		}
		o.report.Lost += n.Lost
		o.report.Unknown += n.Unknown
		j.counts = j.counts.plus(n)
	}
}

// judgeFollowing judges that the plan holds a run that its owner put on record as pending, unless it was claimed.
func (o *Judge) judgeFollowing(j *jobState, n int, inc string, r run) {
	lost := j.shard(n).orphan
	if j.plan == nil || lost == nil || lost.follow != r {
		return
	}
	if pending, ok := j.plan.Reruns.of(n); !ok || pending != r {
		o.addJobViolation(3, j, "shard %d: %s, which %s put on record, is not pending in the plan", n, r, inc)
	}
}

// judgeInFlight judges the outcome of one run in flight, and returns how it must be counted.
func (o *Judge) judgeInFlight(j *jobState, n int, inc string, r run) (counted tallies) {
	sh := j.shard(n)
	if sh.orphan == nil || sh.orphan.run != r {
		return tallies{} // reported by the violation that led to this
	}
	e := j.epoch(r.Epoch)
	if e != nil && e.Def.endsUntracked() {
		o.judgeLateFailover(j, n, inc, sh.orphan)
		sh.orphan = nil
		return tallies{Unknown: 1}
	}
	if e == nil || e.Def.OnCrash == countAsFailed || r.crashAttempts() >= e.Def.MaxAttempts {
		o.judgeLateFailover(j, n, inc, sh.orphan)
		sh.orphan = nil
		return tallies{Lost: 1}
	}
	if j.plan != nil {
		if pending, ok := j.plan.Reruns.of(n); ok && pending == r.next(false) {
			sh.orphan.pending = true
			o.judgeLateFailover(j, n, inc, sh.orphan)
			return tallies{}
		}
	}
	if sh.asked[j.life(r)] { // the same commit may accept and drop the cancellation
		o.judgeLateFailover(j, n, inc, sh.orphan)
		sh.orphan = nil
		return tallies{Lost: 1}
	}
	o.addJobViolation(3, j, "shard %d: %s was in flight, but the failover neither made it pending nor counted it", n, r)
	return tallies{}
}
