package planning

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/event"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// failOverExpired removes the shards of expired owners that are not awaited. Their recorded runs
// become pending re-runs at the next attempt, or count as lost, as the definition says. Where the
// ends of runs are not tracked, recorded runs may have ended long ago: they count as unknown, and
// do not run again.
//
// The read of claims may be older than the end of the session. So the commit is conditional on the
// read: the session has expired, and the claims record of this job has the revision that was read,
// or does not exist if none was read. A claim in between makes the commit conflict.
func (p *jobPlanner) failOverExpired() {
	for _, inc := range p.sortedOwners() {
		if p.Alive(inc) || p.isAwaited(p.segment, inc) {
			continue
		}
		l, ok := p.freshRead(inc, registry.Rev{})
		if !ok {
			p.requestReads(inc)
			continue
		}
		if problem := p.claimsProblem(inc, l); problem != "" {
			p.addProblem(problem)
			continue
		}
		shards := p.next.Owners[inc]
		key := p.Keys.Claims(inc, p.segment)
		if item, ok := l.Claims[p.segment]; ok {
			p.absorbClaims(inc, item.Claims, shards)
			p.change.ops = append(p.change.ops, registry.Delete(key, item.Rev))
		} else {
			p.change.conds = append(p.change.conds, registry.Absent(key))
		}
		p.change.Expired = append(p.change.Expired, record.SessionOf(inc))
		delete(p.next.Owners, inc)
		p.noteDue(shards)
		p.change.lost = append(p.change.lost, inc)
		p.explain("fail over %s of %s", shards, record.InstanceOf(inc))
	}
}

// noteDue notes when the first of shards that lost their owner is due.
func (p *jobPlanner) noteDue(shards shardset.Set) {
	programs := map[int]due.Program{}
	for i := range p.next.Epochs {
		if prog, err := p.compile(&p.next.Epochs[i]); err == nil {
			programs[p.next.Epochs[i].Number] = prog
		}
	}
	done := due.NewProgress(p.next.Watermarks, nil, due.PendingOf(p.next))
	at := due.OldestUnclaimed(p.next, programs, done, shards, p.Now)
	if at == 0 {
		if next := due.NextFire(p.next, programs, done, shards, p.Now.Time()); !next.IsZero() {
			at = record.InstantOf(next)
		}
	}
	if at != 0 && (p.change.Due == 0 || at < p.change.Due) {
		p.change.Due = at
	}
}

// hasExpiredClaims reports whether an expired incarnation has claims of the job, or may have some
// that are not read yet.
func (p *jobPlanner) hasExpiredClaims() bool {
	return slices.ContainsFunc(p.expired, func(inc string) bool {
		l, ok := p.freshRead(inc, registry.Rev{})
		_, has := l.Claims[p.segment]
		return has || !ok
	})
}

// absorbExpired adds to the plan the counts of expired incarnations that own nothing of the job any
// more, and deletes their claims records: a sum over the life of a job must not shrink.
func (p *jobPlanner) absorbExpired() {
	for _, inc := range p.expired {
		if _, owns := p.next.Owners[inc]; owns {
			continue
		}
		l, ok := p.freshRead(inc, registry.Rev{})
		if !ok {
			p.requestReads(inc)
		}
		item, ok := l.Claims[p.segment]
		if !ok {
			continue
		}
		p.absorbOutcomes(inc, item)
		p.change.Expired = append(p.change.Expired, record.SessionOf(inc))
		p.explainUpkeep("add the counts of %s", record.InstanceOf(inc))
	}
}

// absorbClaims brings the claims of an expired owner into the plan.
func (p *jobPlanner) absorbClaims(inc string, claims record.Claims, shards shardset.Set) {
	p.foldClaims(claims, shards)
	p.addOutcomes(claims)
	for _, g := range claims.Running {
		running := g.Shards.Intersect(shards)
		if running.IsZero() {
			continue
		}
		rerun := g.AfterCrash()
		switch epoch, known := p.next.Epoch(g.Epoch); {
		case !known: // another writer deleted the plan or wrote an older one
			p.countLost(running, g.Ref)
			p.reportCrashed(inc, running, g.Ref, false)
		case !due.TracksRuns(epoch.Job()):
			p.next.Counts.Unknown += uint64(running.Len())
			p.failFire(running, g.Ref) // jobs that follow must not take it for a success
			p.explain("count %s as unknown", running)
		case epoch.Job().MayRerun(rerun):
			p.addRerun(inc, running, g.Ref, rerun)
		default:
			p.countLost(running, g.Ref)
			p.reportCrashed(inc, running, g.Ref, false)
		}
	}
}

// reportCrashed adds to the change the event that runs ended with the session of their owner.
func (p *jobPlanner) reportCrashed(inc string, running shardset.Set, r record.Ref, rerun bool) {
	job := p.next.Last().Job()
	p.change.Crashed = append(p.change.Crashed, event.Crashed{
		Job: p.next.Job, Kind: job.Kind, Created: job.Created, Instance: record.InstanceOf(inc), Runs: record.RunGroup{Shards: running, Ref: r}, Rerun: rerun, RunOf: p.next.RunOf(r),
	})
}

// countLost counts crashed runs that do not run again.
func (p *jobPlanner) countLost(running shardset.Set, r record.Ref) {
	p.next.Counts.Lost += uint64(running.Len())
	p.failFire(running, r)
	p.next.Failures = p.next.Failures.With(record.Failure{
		RunGroup: record.RunGroup{Shards: running, Ref: r}, At: p.Now, Error: due.CrashedRunError,
		LastTrigger: p.next.Watermarks.LastTrigger(running),
	}.In(p.next))
	p.explain("count %s as lost", running)
}
