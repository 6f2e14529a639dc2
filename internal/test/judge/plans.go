package judge

import (
	"reflect"
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
)

// planned judges a write of a plan.
func (o *Judge) judgePlan(c *Commit, op *registry.Op, j *jobState) {
	o.judgeTerm(c, j)
	if op.Kind == registry.OpDelete {
		o.addJobViolation(2, j, "the plan was deleted")
		return
	}
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
	j.plan = p
}

// reset judges how many resets a plan has.
func (o *Judge) judgeResets(j *jobState, p *planRecord) {
	before := 0
	if j.plan != nil {
		before = j.plan.Resets
	}
	switch {
	case p.Resets < before || p.Resets > j.control.Resets:
		o.addJobViolation(9, j, "the plan has %d resets after %d; operators have asked for %d", p.Resets, before, j.control.Resets)
	case j.plan != nil && p.Resets > before && p.last().Number == j.plan.last().Number:
		o.addJobViolation(9, j, "the plan has %d resets after %d, and no new generation", p.Resets, before)
	case j.plan != nil:
		o.report.Resets += p.Resets - before
	}
}

// termed judges who wrote a plan, and under what condition.
func (o *Judge) judgeTerm(c *Commit, j *jobState) {
	if c.Client == "" {
		return // nor are its conditions known
	}
	key := registry.Key(o.group + "election/leader")
	i := slices.IndexFunc(c.If, func(c registry.Cond) bool { return c.Kind == registry.CondAt && c.Key == key })
	switch {
	case i < 0:
		o.addJobViolation(6, j, "%s wrote the plan without naming its term", c.Client)
	case c.If[i].Rev.Seq != o.leader.term:
		o.addJobViolation(6, j, "%s wrote the plan in term %d; it is %d", c.Client, c.If[i].Rev.Seq, o.leader.term)
	case c.Client != o.leader.client:
		o.addJobViolation(6, j, "%s wrote the plan in the term of %s", c.Client, o.leader.client)
	}
}

// moved judges who has which shard in p, compared with the plan before.
func (o *Judge) judgeOwners(c *Commit, j *jobState, p *planRecord) {
	var given shards
	for inc, set := range p.Owners {
		if set&given != 0 {
			o.addJobViolation(1, j, "the plan gives %s shards that it also gives to another", inc)
		}
		given |= set
		set.all(func(n int) {
			sh := j.shard(n)
			for other, r := range sh.running {
				if other != inc && o.alive(other) {
					o.addJobViolation(4, j, "shard %d went to %s while %s, whose session lives, runs %s", n, inc, other, r)
				}
			}
			if sh.owner == inc {
				return
			}
			if m := o.members[inc]; m != nil && !j.acceptsLabels(p, m) {
				o.addJobViolation(10, j, "shard %d went to %s, which lacks labels of %v", n, inc, p.last().Def.RunOn)
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
		if given.has(n) {
			continue
		}
		sh.owner = ""
		for other, r := range sh.running {
			if o.alive(other) {
				o.addJobViolation(4, j, "shard %d went to nobody while %s, whose session lives, runs %s", n, other, r)
			}
		}
	}
}

// suits reports whether a member has the labels of the newest definition of a plan, or of
// one that is no older: what the leader knew when it made the plan.
func (j *jobState) acceptsLabels(p *planRecord, m *memberRecord) bool {
	return p.last().Def.acceptsLabels(m) || slices.ContainsFunc(j.defs, func(d definition) bool {
		return d.Revision >= p.last().Def.Revision && d.acceptsLabels(m)
	})
}

// bars reports whether a member lacks labels of any of these definitions.
func (j *jobState) mayRefuseLabels(p *planRecord, m *memberRecord) bool {
	return !p.last().Def.acceptsLabels(m) || slices.ContainsFunc(j.defs, func(d definition) bool {
		return d.Revision >= p.last().Def.Revision && !d.acceptsLabels(m)
	})
}

// newest returns the definition whose labels hold in the end.
func (j *jobState) newestDefinition() *definition {
	def := &j.plan.last().Def
	if n := len(j.defs); n > 0 && j.defs[n-1].Revision >= def.Revision {
		def = &j.defs[n-1]
	}
	return def
}

// defined takes in a definition that was stored.
func (o *Judge) addDefinition(op *registry.Op, j *jobState) {
	if op.Kind == registry.OpDelete {
		return
	}
	def, err := decode[definition](op.Value)
	if err != nil {
		o.addJobViolation(8, j, "definition: %v", err)
		return
	}
	j.defs = append(j.defs, *def)
}

// awaited judges that a shard goes to another than the one who had it, whose session has
// ended and who may ask to be waited for.
func (o *Judge) judgeGrace(c *Commit, j *jobState, p *planRecord, n int, had, gets string) {
	s := o.session(had)
	if c.Client == "" || s == nil || !o.now.Before(s.end.Add(o.graceOf(had))) {
		return
	}
	if !slices.ContainsFunc(c.If, func(c registry.Cond) bool { return c.Kind == registry.CondDead && c.Session == sessionOf(had) }) {
		return // decided while it lived
	}
	if j.plan.owner(n) != had {
		return // it was nobody's meanwhile: the job had fewer shards
	}
	if !o.joined[nameOf(had)].Before(s.end) {
		return // it is back, or was, and what it is to have is another matter
	}
	if m := o.members[had]; m != nil && j.mayRefuseLabels(p, m) {
		return // nobody waits for one who may not have it
	}
	if o.excluded[exclusion{j.segment, had}] || o.excluded[exclusion{groupSegment, had}] {
		return // it is disabled, or was, to a leader that has not heard that it no longer is
	}
	o.addJobViolation(5, j, "shard %d went from %s, which had gone at %v and was to be waited for, to %s", n, had, instantOf(s.end), gets)
}

// graceOf returns for how long an incarnation asks to be waited for.
func (o *Judge) graceOf(inc string) time.Duration {
	if m := o.members[inc]; m != nil {
		return time.Duration(m.Grace)
	}
	return 0
}

// epochs takes in what definitions hold when, and judges how they follow.
func (o *Judge) judgeEpochs(j *jobState, p *planRecord) {
	for i := range p.Epochs {
		e := &p.Epochs[i]
		if known := j.epoch(e.Number); known != nil {
			if known.Until != 0 && e.Until > known.Until {
				known.grown = span{known.Until, instantOf(o.now)}
			}
			known.Until = e.Until
			if known.From != e.From || !reflect.DeepEqual(known.Def, e.Def) {
				o.addJobViolation(8, j, "epoch %d has changed", e.Number)
			}
			continue
		}
		if n := len(j.epochs); n > 0 {
			last := &j.epochs[n-1]
			if e.Number <= last.Number || last.Until == 0 || last.Until > e.From {
				o.addJobViolation(8, j, "epoch %d, from %v, comes after epoch %d, from %v until %v",
					e.Number, e.From, last.Number, last.From, last.Until)
			}
			o.report.Epochs++
		}
		e.seen, e.life = instantOf(o.now), p.Resets
		e.every, e.err = e.Def.interval()
		j.epochs = append(j.epochs, *e)
	}
}

// triggered takes in what operators asked for.
func (o *Judge) addTriggers(j *jobState, p *planRecord) {
	for _, t := range p.Triggers {
		if j.plan != nil && slices.ContainsFunc(j.plan.Triggers, func(old trigger) bool { return old.Number == t.Number }) {
			continue
		}
		e := j.epoch(t.Epoch)
		if e == nil {
			o.addJobViolation(8, j, "trigger %d is of epoch %d, which there is not", t.Number, t.Epoch)
			continue
		}
		set := firstShards(e.Def.Shards)
		if t.Shards != nil {
			set &= *t.Shards
		}
		j.triggers[t.Number], j.lastTrigger = set, max(j.lastTrigger, t.Number)
		o.report.Triggers++
	}
}

// bury judges the deletion of an incarnation's claims.
func (o *Judge) judgeReap(b reaping) {
	if b.claims == nil {
		return
	}
	j := b.job
	delete(j.claims, b.incarnation)
	b.claims.Running.all(func(n int, r run) {
		sh := j.shard(n)
		delete(sh.running, b.incarnation)
		if o.alive(b.incarnation) {
			o.addJobViolation(3, j, "shard %d: the record of %s was deleted, whose session lives and runs %s", n, b.incarnation, r)
		}
	})
}

// lost judges what a failover made of the runs in flight: pending at the next attempt, or
// counted as lost if the job says so, or as unknown if their ends are not tracked.
func (o *Judge) judgeFailover(buried []reaping, before map[*jobState]tallies) {
	want, known := map[*jobState]tallies{}, map[*jobState]int{}
	for j := range before {
		want[j] = tallies{}
	}
	for _, b := range buried {
		if b.claims == nil {
			continue
		}
		known[b.job] += b.claims.Counts.Lost // by their owner
		b.claims.Running.all(func(n int, r run) {
			want[b.job] = want[b.job].plus(o.judgeInFlight(b.job, n, b.incarnation, r))
		})
		b.claims.Reruns.all(func(n int, r run) { o.judgePendingHandBack(b.job, n, b.incarnation, r) })
	}
	for j, n := range want {
		if j.plan == nil {
			continue
		}
		if counted := j.plan.Counts.Lost - before[j].Lost - known[j]; counted != n.Lost {
			o.addJobViolation(3, j, "%d runs were counted as lost, not %d", counted, n.Lost)
		}
		if counted := j.plan.Counts.Unknown - before[j].Unknown; counted != n.Unknown {
			o.addJobViolation(3, j, "%d runs were counted as unknown, not %d", counted, n.Unknown)
		}
		o.report.Lost += n.Lost
		o.report.Unknown += n.Unknown
		j.counts = j.counts.plus(n)
	}
}

// taken judges that the plan took over a run that was handed back, unless it has been claimed.
func (o *Judge) judgePendingHandBack(j *jobState, n int, inc string, r run) {
	lost := j.shard(n).orphan
	if j.plan == nil || lost == nil || lost.next(true) != r {
		return
	}
	if owed, ok := j.plan.Reruns.of(n); !ok || owed != r {
		o.addJobViolation(3, j, "shard %d: %s, which %s handed back, is not pending", n, r, inc)
	}
}

// inFlight judges what became of one run in flight, and returns how it is to be counted.
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
	if e == nil || e.Def.OnCrash == countAsFailed || r.Attempt-r.HandedBack >= e.Def.MaxAttempts {
		o.judgeLateFailover(j, n, inc, sh.orphan)
		sh.orphan = nil
		return tallies{Lost: 1}
	}
	if j.plan != nil {
		if owed, ok := j.plan.Reruns.of(n); ok && owed == r.next(false) {
			sh.orphan.pending = true
			o.judgeLateFailover(j, n, inc, sh.orphan)
			return tallies{}
		}
	}
	o.addJobViolation(3, j, "shard %d: %s was in flight; the failover neither owes nor counts it", n, r)
	return tallies{}
}
