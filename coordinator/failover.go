package coordinator

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// failOver takes the shards of owners whose session has ended, unless they wait for its
// return. Their runs in flight become pending re-runs at the next attempt, or are counted as
// lost, as the job says. Where the ends of runs are not tracked, those on record may have ended
// long ago: none is made again, and they are counted as what they are, unknown.
//
// The look that this rests on may be older than the end of the session, so the commit
// carries all of it: the session is dead, and its claims of this job are at the revision
// that was read, or absent if none were. A claim that came in between makes it conflict.
func (p *planning) failOver() {
	for _, inc := range slices.Sorted(maps.Keys(p.p.Owners)) {
		if p.alive(inc) || p.waits(p.segment, inc) {
			continue
		}
		l, ok := p.looked(inc, registry.Rev{})
		if !ok {
			p.looks[inc] = true
			continue
		}
		if p.unreadable(inc, l) {
			continue
		}
		shards := p.p.Owners[inc]
		key := p.keys.Claims(inc, p.segment)
		if item, ok := l.claims[p.segment]; ok {
			p.bury(item.Claims, shards)
			p.c.ops = append(p.c.ops, registry.Delete(key, item.rev))
		} else {
			p.c.conds = append(p.c.conds, registry.Absent(key))
		}
		p.c.dead = append(p.c.dead, sessionOf(inc))
		delete(p.p.Owners, inc)
		p.p.Frozen = p.p.Frozen.Minus(shards)
		p.because("fail over %s of %s", shards, instanceOf(inc))
	}
}

// bereaved reports that a dead incarnation has left claims of the job, or may have.
func (p *planning) bereaved() bool {
	return slices.ContainsFunc(p.dead, func(inc string) bool {
		l, ok := p.looked(inc, registry.Rev{})
		_, left := l.claims[p.segment]
		return left || !ok
	})
}

// inherit adds up what dead incarnations that own nothing of the job any more have counted
// while they did, and takes their records away with it: a sum over the life of a job must
// not shrink because somebody left.
func (p *planning) inherit() {
	for _, inc := range p.dead {
		if _, owns := p.p.Owners[inc]; owns {
			continue
		}
		l, ok := p.looked(inc, registry.Rev{})
		if !ok {
			p.looks[inc] = true
			continue
		}
		item, ok := l.claims[p.segment]
		if !ok {
			continue
		}
		p.inheritFrom(inc, item)
		p.c.dead = append(p.c.dead, sessionOf(inc))
		p.upkeeping("inherit the counts of %s", instanceOf(inc))
	}
}

func (p *planning) inheritFrom(inc string, item claimsItem) {
	p.outcomes(item.Claims)
	p.c.ops = append(p.c.ops, registry.Delete(p.keys.Claims(inc, p.segment), item.rev))
}

// outcomes brings into the plan what claims that go say of runs that have ended.
func (p *planning) outcomes(claims record.Claims) {
	p.p.Counts = p.p.Counts.Add(claims.Counts)
	p.p.Ended = max(p.p.Ended, claims.Ended)
	p.p.Failures = p.p.Failures.With(claims.Failures...)
}

// bury brings a dead incarnation's claims into the plan.
func (p *planning) bury(claims record.Claims, shards shardset.Set) {
	p.fold(claims, shards)
	p.outcomes(claims)
	for _, g := range claims.Running {
		running := g.Shards.Intersect(shards)
		if running.IsZero() {
			continue
		}
		next := g.Retry()
		_, known := p.p.Epoch(g.Gen)
		switch {
		case !known: // another hand deleted the plan or wrote an older one
			p.countLost(running, g.Ref)
		case !tracksRuns(p.epoch(g.Ref).Job()):
			p.p.Counts.Unknown += uint64(running.Len())
			p.because("count %s as unknown", running)
		case p.rerunnable(next):
			p.p.Reruns = p.p.Reruns.With(running, next)
		default:
			p.countLost(running, g.Ref)
		}
	}
}

// countLost counts runs that a crash ended and that are not made again.
func (p *planning) countLost(running shardset.Set, r record.Ref) {
	p.p.Counts.Lost += uint64(running.Len())
	p.p.Failures = p.p.Failures.With(record.Failure{
		RunGroup: record.RunGroup{Shards: running, Ref: r}, At: p.now, Error: crashed,
	})
	p.because("count %s as lost", running)
}

// rerunnable reports whether the job wants a run that a crash ended to be made again. A
// run that kills its process must not go on to kill the whole fleet, one by one. Attempts
// that were handed back killed no process and do not count.
func (p *planning) rerunnable(next record.Ref) bool {
	e := p.epoch(next)
	return e.Job().OnCrash != record.CrashFail && next.Attempt-next.HandedBack <= e.Job().Attempts()
}

// epoch returns the epoch whose definition holds for a run.
func (p *planning) epoch(r record.Ref) *record.Epoch {
	e, ok := p.p.Epoch(r.Gen)
	if !ok {
		e = p.p.Last()
	}
	return e
}

// burials returns what is left of dead incarnations that own nothing in the view.
//
// The view of the plans may be older than the last claims of the dead: then a plan that is
// to come gives it the shards that it claimed, and nobody else knows what. So claims go with
// a plan that takes in what they say, or on condition that there is none.
func (v *view) burials(looks map[string]bool, changes []change) []burial {
	if len(v.dead) == 0 {
		return nil
	}
	owns := map[string]bool{}
	for _, p := range v.plans {
		for inc := range p.Owners {
			owns[inc] = true
		}
	}
	inherited := map[registry.SessionID]bool{}
	for _, c := range changes {
		for _, s := range c.dead {
			inherited[s] = true // what is left is known in the next round
		}
		for inc := range c.plan.Owners {
			owns[inc] = true
		}
	}
	var out []burial
next:
	for _, inc := range v.dead {
		if owns[inc] || inherited[sessionOf(inc)] {
			continue
		}
		l, ok := v.looked(inc, registry.Rev{})
		if !ok {
			looks[inc] = true
			continue
		}
		if len(l.broken) > 0 {
			continue // it may say what nobody else knows
		}
		b := burial{incarnation: inc}
		for _, seg := range slices.Sorted(maps.Keys(l.claims)) {
			if v.broken[seg] {
				continue next
			}
			b.parts = append(b.parts, share{
				conds: []registry.Cond{registry.Absent(v.keys.Plan(seg))},
				ops:   []registry.Op{registry.Delete(v.keys.Claims(inc, seg), l.claims[seg].rev)},
			})
		}
		if rev := v.members[inc].rev; !rev.IsZero() { // zero: another hand deleted the record
			b.parts = append(b.parts, share{ops: []registry.Op{registry.Delete(v.keys.Member(inc), rev)}})
		}
		out = append(out, b)
	}
	return out
}
