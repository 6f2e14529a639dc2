package planning

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/coordinator/internal/batch"
	"github.com/rota-dev/rota/coordinator/internal/due"
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
func (p *jobPlanner) failOver() {
	for _, inc := range slices.Sorted(maps.Keys(p.next.Owners)) {
		if p.Alive(inc) || p.waits(p.segment, inc) {
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
		shards := p.next.Owners[inc]
		key := p.Keys.Claims(inc, p.segment)
		if item, ok := l.Claims[p.segment]; ok {
			p.bury(item.Claims, shards)
			p.change.ops = append(p.change.ops, registry.Delete(key, item.Rev))
		} else {
			p.change.conds = append(p.change.conds, registry.Absent(key))
		}
		p.change.Expired = append(p.change.Expired, record.SessionOf(inc))
		delete(p.next.Owners, inc)
		p.next.Frozen = p.next.Frozen.Minus(shards)
		p.because("fail over %s of %s", shards, record.InstanceOf(inc))
	}
}

// bereaved reports that a dead incarnation has left claims of the job, or may have.
func (p *jobPlanner) bereaved() bool {
	return slices.ContainsFunc(p.expired, func(inc string) bool {
		l, ok := p.looked(inc, registry.Rev{})
		_, left := l.Claims[p.segment]
		return left || !ok
	})
}

// inherit adds up what dead incarnations that own nothing of the job any more have counted
// while they did, and takes their records away with it: a sum over the life of a job must
// not shrink because somebody left.
func (p *jobPlanner) inherit() {
	for _, inc := range p.expired {
		if _, owns := p.next.Owners[inc]; owns {
			continue
		}
		l, ok := p.looked(inc, registry.Rev{})
		if !ok {
			p.looks[inc] = true
			continue
		}
		item, ok := l.Claims[p.segment]
		if !ok {
			continue
		}
		p.inheritFrom(inc, item)
		p.change.Expired = append(p.change.Expired, record.SessionOf(inc))
		p.upkeeping("inherit the counts of %s", record.InstanceOf(inc))
	}
}

func (p *jobPlanner) inheritFrom(inc string, item ClaimsRecord) {
	p.outcomes(item.Claims)
	p.change.ops = append(p.change.ops, registry.Delete(p.Keys.Claims(inc, p.segment), item.Rev))
}

// outcomes brings into the plan what claims that go say of runs that have ended.
func (p *jobPlanner) outcomes(claims record.Claims) {
	p.next.Counts = p.next.Counts.Add(claims.Counts)
	p.next.Ended = max(p.next.Ended, claims.Ended)
	p.next.Failures = p.next.Failures.With(claims.Failures...)
}

// bury brings a dead incarnation's claims into the plan.
func (p *jobPlanner) bury(claims record.Claims, shards shardset.Set) {
	p.fold(claims, shards)
	p.outcomes(claims)
	for _, g := range claims.Running {
		running := g.Shards.Intersect(shards)
		if running.IsZero() {
			continue
		}
		next := g.Retry()
		_, known := p.next.Epoch(g.Epoch)
		switch {
		case !known: // another hand deleted the plan or wrote an older one
			p.countLost(running, g.Ref)
		case !due.TracksRuns(p.epoch(g.Ref).Job()):
			p.next.Counts.Unknown += uint64(running.Len())
			p.because("count %s as unknown", running)
		case p.rerunnable(next):
			p.next.Reruns = p.next.Reruns.With(running, next)
		default:
			p.countLost(running, g.Ref)
		}
	}
}

// countLost counts runs that a crash ended and that are not made again.
func (p *jobPlanner) countLost(running shardset.Set, r record.Ref) {
	p.next.Counts.Lost += uint64(running.Len())
	p.next.Failures = p.next.Failures.With(record.Failure{
		RunGroup: record.RunGroup{Shards: running, Ref: r}, At: p.Now, Error: due.CrashedRunError,
	})
	p.because("count %s as lost", running)
}

// rerunnable reports whether the job wants a run that a crash ended to be made again. A
// run that kills its process must not go on to kill the whole fleet, one by one. Attempts
// that were handed back killed no process and do not count.
func (p *jobPlanner) rerunnable(next record.Ref) bool {
	e := p.epoch(next)
	return e.Job().OnCrash != record.CrashFail && next.Attempt-next.HandedBack <= e.Job().Attempts()
}

// epoch returns the epoch whose definition holds for a run.
func (p *jobPlanner) epoch(r record.Ref) *record.Epoch {
	e, ok := p.next.Epoch(r.Epoch)
	if !ok {
		e = p.next.Last()
	}
	return e
}

// burials returns what is left of dead incarnations that own nothing in the view.
//
// The view of the plans may be older than the last claims of the dead: then a plan that is
// to come gives it the shards that it claimed, and nobody else knows what. So claims go with
// a plan that takes in what they say, or on condition that there is none.
func (v *View) burials(looks map[string]bool, changes []Change) []Reaping {
	if len(v.expired) == 0 {
		return nil
	}
	owns := map[string]bool{}
	for _, p := range v.Plans {
		for inc := range p.Owners {
			owns[inc] = true
		}
	}
	inherited := map[registry.SessionID]bool{}
	for _, c := range changes {
		for _, s := range c.Expired {
			inherited[s] = true // what is left is known in the next round
		}
		for inc := range c.Plan.Owners {
			owns[inc] = true
		}
	}
	var out []Reaping
next:
	for _, inc := range v.expired {
		if owns[inc] || inherited[record.SessionOf(inc)] {
			continue
		}
		l, ok := v.looked(inc, registry.Rev{})
		if !ok {
			looks[inc] = true
			continue
		}
		if len(l.Unreadable) > 0 {
			continue // it may say what nobody else knows
		}
		b := Reaping{Incarnation: inc}
		for _, seg := range slices.Sorted(maps.Keys(l.Claims)) {
			if v.UnreadablePlans[seg] {
				continue next
			}
			b.Parts = append(b.Parts, batch.Share{
				Conds: []registry.Cond{registry.Absent(v.Keys.Plan(seg))},
				Ops:   []registry.Op{registry.Delete(v.Keys.Claims(inc, seg), l.Claims[seg].Rev)},
			})
		}
		if rev := v.Members[inc].Rev; !rev.IsZero() { // zero: another hand deleted the record
			b.Parts = append(b.Parts, batch.Share{Ops: []registry.Op{registry.Delete(v.Keys.Member(inc), rev)}})
		}
		out = append(out, b)
	}
	return out
}
