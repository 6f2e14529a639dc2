package planning

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// restorePlan returns the change that writes a plan again. It changes nothing else: the next change
// has to rest on claims that were read after this one.
func (p *jobPlanner) restorePlan() (Change, bool) {
	if p.UnreadablePlans[p.segment] {
		return Change{}, false // by a value that cannot be replaced
	}
	p.change.rev, p.change.Plan = p.Plans[p.segment].Rev, p.Plans[p.segment].Clone()
	p.because("write again a plan that another hand changed")
	return p.change, true
}

// past is evidence, in claims, of a plan that another hand deleted.
type past struct {
	gen     int                     // the highest generation
	through record.Instant          // the last fire that was claimed
	running map[string]shardset.Set // by incarnations that live
}

// before returns the evidence of an earlier plan of a job that has none. That its definition was stored during the
// term does not show that there was none: an operator may have written the definition again after the plan was lost, and a
// later revision is stored while there is a plan. Without a plan no fire is claimed, so a look at any
// time is new enough.
func (p *jobPlanner) before(job JobRecord) (was past, whole bool) {
	whole = true
	was.running = map[string]shardset.Set{}
	for inc, m := range p.Members {
		if !m.Offers(job.Name) {
			continue
		}
		l, ok := p.looked(inc, registry.Rev{})
		if !ok {
			p.looks[inc], whole = true, false
			continue
		}
		claims := l.claimsOf(p.segment)
		for _, g := range claims.Watermarks {
			if was.gen = max(was.gen, g.Epoch); g.Fire <= p.Now.Add(p.Skew) {
				was.through = max(was.through, g.Fire)
			}
		}
		for _, g := range claims.Running {
			was.gen = max(was.gen, g.Epoch)
			if p.Alive(inc) {
				was.running[inc] = was.running[inc].Union(g.Shards)
			}
		}
	}
	return was, whole
}

// keepRunning makes members the owners of the shards that they run.
func (p *jobPlanner) keepRunning(running map[string]shardset.Set) {
	left := shardset.Range(0, p.next.Shards())
	for _, inc := range slices.Sorted(maps.Keys(running)) {
		if part := running[inc].Intersect(left); !part.IsZero() {
			p.next.Owners[inc], left = part, left.Minus(part)
			p.because("leave %s with %s, which runs them", part, inc)
		}
	}
}
