package planning

import (
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// hasShardsToMove reports whether shards are frozen, or owned by others than their target owners.
func (p *jobPlanner) hasShardsToMove() bool {
	if !p.prev.Frozen.IsZero() || len(p.prev.Owners) != len(p.target.owners) {
		return true
	}
	for inc, want := range p.target.owners {
		if !want.Equal(p.prev.Owners[inc]) {
			return true
		}
	}
	return false
}

// moveShards moves shards from live owners to their target owners. Idle shards of a draining member
// move at once: its member record shows that it makes no more claims. Shards of other members are
// frozen first, so that no claim comes between the read of their owner's claims and the move. A
// shard that turns out to be running stays frozen with its owner until its run has ended; all
// others move without waiting for it.
func (p *jobPlanner) moveShards() {
	frozen := shardset.Set{}
	for _, inc := range p.sortedOwners() {
		if !p.HasBothRecords(inc) {
			// Its member record is not delivered yet, or failOverExpired handles it.
			frozen = frozen.Union(p.next.Frozen.Intersect(p.next.Owners[inc]))
			continue
		}
		if leaving := p.next.Owners[inc].Minus(p.target.owners[inc]); !leaving.IsZero() {
			frozen = frozen.Union(p.releaseIdle(inc, leaving))
		}
	}
	p.setFrozen(p.boundFreezes(frozen))
	p.dropEmptyOwners()
	p.assignUnowned()
}

// maxFreezes is how many jobs one decision freezes shards of if claims are read key by key. A frozen shard is not claimed
// until its owner's claims have been read and the move is committed; for all jobs of a large group that takes a busy store
// many seconds.
const maxFreezes = 256

// boundFreezes returns the shards to freeze: no more than are frozen, once other jobs have used up this decision's share.
func (p *jobPlanner) boundFreezes(frozen shardset.Set) shardset.Set {
	if !p.ListByKey || frozen.Minus(p.next.Frozen).IsZero() {
		return frozen
	}
	if p.round.frozen == maxFreezes {
		return frozen.Intersect(p.next.Frozen)
	}
	p.round.frozen++
	return frozen
}

// FreezeDecision is in the text of each decision that changes which shards are frozen.
const FreezeDecision = "freeze"

func (p *jobPlanner) setFrozen(frozen shardset.Set) {
	if frozen.Equal(p.next.Frozen) {
		return
	}
	if more := frozen.Minus(p.next.Frozen); !more.IsZero() {
		p.explain(FreezeDecision+" %s", more)
	}
	if less := p.next.Frozen.Minus(frozen); !less.IsZero() {
		p.explain("un"+FreezeDecision+" %s", less)
	}
	p.next.Frozen = frozen
}

// releaseIdle removes from a live owner those of the leaving shards that are known to be idle, and
// returns the others, which are to be frozen.
func (p *jobPlanner) releaseIdle(inc string, leaving shardset.Set) (frozen shardset.Set) {
	m := p.Members[inc]
	fenced := leaving // shards that can no longer be claimed
	since := m.Rev
	if !m.Draining {
		fenced = leaving.Intersect(p.prev.Frozen)
		since = p.prev.Rev
	}
	if fenced.IsZero() {
		return leaving
	}
	l, ok := p.freshPart(inc, p.segment, since)
	if !ok {
		p.requestPart(inc)
		return leaving
	}
	if problem := p.claimsProblem(inc, l); problem != "" {
		p.addProblem(problem)
		return leaving
	}
	claims := l.claimsOf(p.segment)
	running := claims.Running.Shards().Intersect(fenced)
	if !running.IsZero() {
		p.follow[inc] = true
	}
	idle := fenced.Minus(running)
	if idle.IsZero() {
		return leaving
	}
	p.foldClaims(claims, idle)
	p.next.Owners[inc] = p.next.Owners[inc].Minus(idle)
	p.explain("release %s from %s", idle, record.InstanceOf(inc))
	if item, ok := l.Claims[p.segment]; ok && m.Draining && p.next.Owners[inc].IsZero() {
		p.absorbOutcomes(inc, item) // the member commits no more claims of this job
	}
	return leaving.Minus(idle)
}
