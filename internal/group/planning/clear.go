package planning

import (
	"slices"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// hasServed reports whether it is time to clear served parts of the plan.
func (p *jobPlanner) hasServed() bool { return p.SlowTick && isClearable(p.prev.Plan) }

// clearServed removes served parts from the plan: pending re-runs that were claimed,
// triggers that all their shards have claimed, cancelled runs that have ended, and epochs in which nothing is due. It requires
// reads of all owners' claims, so it waits for a slow tick unless the plan lacks room.
func (p *jobPlanner) clearServed() {
	if !p.SlowTick && !p.needsRoom || !isClearable(p.next) {
		return
	}
	progress := JobProgress{Watermarks: p.next.Watermarks}
	if p.next.Fires != nil {
		for _, run := range p.next.Fires.Open {
			progress.OpenEpochs = append(progress.OpenEpochs, run.Epoch)
		}
	}
	for _, inc := range p.sortedOwners() {
		l, ok := p.freshRead(inc, p.prev.Rev)
		if !ok {
			p.requestReads(inc)
			return
		}
		if l.Unreadable[p.segment] {
			return
		}
		claims := l.claimsOf(p.segment)
		mine := p.next.Owners[inc]
		progress.Watermarks = progress.Watermarks.Fold(claims.Watermarks, mine)
		// A record also lists re-runs of shards that have moved; these are in the plan.
		for _, g := range slices.Concat(claims.Running, due.Unclaimed(claims.Reruns.Within(mine), progress.Watermarks)) {
			progress.Running = progress.Running.With(g.Shards, g.Ref)
		}
		for _, run := range claims.Fires {
			if p.isOpenFire(run.At) {
				progress.OpenEpochs = append(progress.OpenEpochs, run.Epoch)
			}
		}
		p.clearReruns(inc, l)
	}
	progress.Reruns = p.next.Reruns
	p.clearReleased(&progress)
	p.clearCancels(&progress)
	p.clearTriggers(&progress)
	p.clearEpochs(&progress)
	if p.needsRoom && len(p.change.Upkeep) == 0 {
		for inc := range p.next.Owners {
			p.follow[inc] = true // its next claim may make room
		}
	}
}

// clearReruns removes the pending re-runs that an owner has claimed. A read from before the plan's
// last change would do as well: the owner's watermarks only grow while the plan names the owner.
func (p *jobPlanner) clearReruns(inc string, l FreshRead) {
	item, ok := l.Claims[p.segment]
	if !ok {
		return
	}
	pending := p.next.Reruns.Within(p.next.Owners[inc])
	pending = slices.DeleteFunc(pending, func(g record.RunGroup) bool { return p.keepsFireWithReads(g.Fire) })
	claimed := pending.Shards().Minus(due.Unclaimed(pending, item.Watermarks).Shards())
	if claimed.IsZero() {
		return
	}
	p.next.Reruns = p.next.Reruns.Without(claimed)
	p.explainUpkeep("clear re-runs of %s", claimed)
}

func (p *jobPlanner) clearTriggers(progress *JobProgress) {
	p.next.Triggers = slices.DeleteFunc(p.next.Triggers, func(t record.Trigger) bool {
		var targets shardset.Set
		if e, ok := p.next.Epoch(t.Epoch); ok {
			targets = due.TriggerTargets(t, e)
		}
		if !t.IsPast() && p.keepsFireWithReads(t.At) || !progress.TriggerServed(t, targets) {
			return false
		}
		p.explainUpkeep("clear trigger %d", t.Number)
		return true
	})
}

// clearEpochs removes epochs that are over and have no fire due, no run, no re-run and no trigger.
// An epoch that waits, perhaps for long, as for the trigger of a disabled shard, does not hold up
// the epochs after it.
func (p *jobPlanner) clearEpochs(progress *JobProgress) {
	last := p.next.Last().Number
	p.next.Epochs = slices.DeleteFunc(p.next.Epochs, func(e record.Epoch) bool {
		if e.Number == last || e.Until > p.Now || p.usesEpoch(progress, e.Number) {
			return false
		}
		// If the leader cannot compile the definition, members that offer the job can, and serve its
		// fires before those of later epochs. If no live member offers the job, the epoch is dropped.
		isDue, known := p.hasDue(&e, progress.Watermarks)
		if isDue && (known || p.IsOffered(p.next.Last().Job())) {
			return false
		}
		if isDue {
			p.explain("drop what may be due in epoch %d: no live instance supports its definition", e.Number)
		}
		p.explainUpkeep("clear epoch %d", e.Number)
		return true
	})
	p.dropShardsFrom(p.next.Shards())
}

// usesEpoch reports whether a run, a pending re-run or a trigger belongs to an epoch.
func (p *jobPlanner) usesEpoch(progress *JobProgress, number int) bool {
	inEpoch := func(g record.RunGroup) bool { return g.Epoch == number }
	return slices.Contains(progress.OpenEpochs, number) || slices.ContainsFunc(progress.Running, inEpoch) || slices.ContainsFunc(progress.Reruns, inEpoch) ||
		slices.ContainsFunc(p.next.Triggers, func(t record.Trigger) bool { return t.Epoch == number })
}

// hasDue reports whether fires of an epoch that is over are due. If the leader cannot compile the
// definition, known is false, and isDue reports whether fires may be due.
func (p *jobPlanner) hasDue(e *record.Epoch, marks record.Watermarks) (isDue, known bool) {
	parts := marks.Split(shardset.Range(0, e.Job().Shards))
	prog, err := p.compile(e)
	if err != nil {
		return slices.ContainsFunc(parts, func(part record.WatermarkGroup) bool { return part.Epoch <= e.Number }), false
	}
	return slices.ContainsFunc(parts, func(part record.WatermarkGroup) bool {
		d, _ := due.InEpoch(e, prog, part.Watermark, p.Now, false)
		return d.HasAny()
	}), true
}

// dropShardsFrom removes the shards from a number on, which no epoch in the plan has any more.
func (p *jobPlanner) dropShardsFrom(total int) {
	dropped := shardset.Range(total, record.MaxShards)
	for inc, shards := range p.next.Owners {
		p.next.Owners[inc] = shards.Minus(dropped)
	}
	p.dropEmptyOwners()
	p.next.Frozen = p.next.Frozen.Minus(dropped)
	p.next.Watermarks = p.next.Watermarks.Without(dropped)
}
