package planning

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// restorePlan returns the change that writes the leader's copy of a plan again. It makes no other
// change: the next one has to rest on claims that were read after this one.
func (p *jobPlanner) restorePlan() (Change, bool) {
	if p.UnreadablePlans[p.segment] {
		return Change{}, false // the value at the key cannot be replaced
	}
	p.change.rev, p.change.Plan = p.Plans[p.segment].Rev, p.Plans[p.segment].Clone()
	p.explain("restore the plan, which another writer changed")
	return p.change, true
}

// pastPlan is what claims show of an earlier plan that another writer deleted.
type pastPlan struct {
	epoch      int                     // the highest epoch number
	trigger    uint64                  // the highest number of a claimed trigger
	through    record.Instant          // the last claimed fire
	running    map[string]shardset.Set // by live incarnation
	watermarks record.Watermarks
}

// findPastPlan returns what claims show of an earlier plan of a job that has none, and which
// incarnations must be read first. Every new plan needs this check: that the definition was stored
// during this term does not show that the job is new, as an operator may have stored it again after
// the plan was lost or the job was forgotten. Members that do not offer the job are read too: they may
// offer it later, and then fold their watermarks into those of the plan. A read of this round is fresh
// enough: without a plan, no claim commits.
func (p *jobPlanner) findPastPlan() (past pastPlan, missing []string) {
	past.running = map[string]shardset.Set{}
	for inc := range p.Members {
		l, ok := p.freshPart(inc, p.segment, registry.Rev{})
		if !ok {
			missing = append(missing, inc)
		}
		claims := l.claimsOf(p.segment)
		for _, g := range claims.Watermarks {
			past.epoch, past.trigger = max(past.epoch, g.Epoch), max(past.trigger, g.Trigger)
		}
		past.watermarks = past.watermarks.Fold(claims.Watermarks, shardset.Range(0, record.MaxShards))
		for _, g := range claims.Reruns { // their epochs are gone, so that they would wait for ever
			past.epoch, past.trigger = max(past.epoch, g.Epoch), max(past.trigger, g.Trigger)
			past.watermarks = past.watermarks.Raise(g.Shards, g.Watermark())
		}
		past.through = max(past.through, lastFireUntil(claims.Watermarks, p.Now.Add(p.Skew)))
		for _, g := range claims.Running {
			past.epoch = max(past.epoch, g.Epoch)
			if p.Alive(inc) {
				past.running[inc] = past.running[inc].Union(g.Shards)
			}
		}
	}
	return past, missing
}

// findPast returns what is known of earlier plans of a job that has none. It requests the reads that are missing.
func (p *jobPlanner) findPast(d DefinedRecord) (past pastPlan, missing []string) {
	if d.Defined != nil && d.Rest != nil { // no claims are left of it: they were deleted with its plan
		return pastOfRest(d.Rest), nil
	}
	past, missing = p.findPastPlan()
	if d.Defined == nil {
		p.requestReads(missing...)
		return past, missing
	}
	for _, inc := range missing { // many jobs may be defined while many others are awake
		p.requestRecord(inc)
	}
	return past, missing
}

// keepRunning makes members the owners of the shards that they run.
func (p *jobPlanner) keepRunning(running map[string]shardset.Set) {
	left := shardset.Range(0, p.next.Shards())
	for _, inc := range slices.Sorted(maps.Keys(running)) {
		if part := running[inc].Intersect(left); !part.IsZero() {
			p.next.Owners[inc], left = part, left.Minus(part)
			p.explain("keep %s with %s, which runs them", part, inc)
		}
	}
}
