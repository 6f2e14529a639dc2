package snapshot

import (
	"maps"

	"github.com/rota-dev/rota/internal/group/pools"
	"github.com/rota-dev/rota/internal/record"
)

// Pools are the records of the pools of a group.
type Pools struct {
	Sizes   map[string]int           // those that operators have set
	Slots   map[string]record.Slots  // by pool
	Demands map[string]record.Demand // by incarnation
}

// Pools returns the records of the pools. They are shared, and change with the snapshot.
func (s *Snapshot) Pools() Pools {
	p := Pools{Slots: s.Slots, Demands: s.Demands}
	if s.Group.GroupControl != nil {
		p.Sizes = s.Group.Pools
	}
	return p
}

// HasPool reports whether a plan has a pool.
func (s *Snapshot) HasPool() bool { return s.pooled > 0 }

// Held returns the slots of a pool that an incarnation has. They count also after its grant is gone, until its runs have ended.
func (p *Pools) Held(pool, inc string) int {
	slots, _ := pools.Held(p.Slots[pool].Grants[inc], p.Demands[inc].Pools[pool])
	return slots
}

// Holders returns the slots of a pool by incarnation, without those that have none.
func (p *Pools) Holders(pool string) map[string]int {
	slots := map[string]int{}
	for inc := range p.Slots[pool].Grants {
		slots[inc] = p.Held(pool, inc)
	}
	for inc := range p.Demands {
		slots[inc] = p.Held(pool, inc)
	}
	maps.DeleteFunc(slots, func(_ string, n int) bool { return n == 0 })
	return slots
}

// Waits reports whether due runs of an incarnation wait for a slot of a pool, as far as it has announced that.
func (p *Pools) Waits(pool, inc string) bool {
	slots := p.Held(pool, inc)
	return slots == 0 || p.Slots[pool].Grants[inc].Deal == 0 || p.Demands[inc].Pools[pool].Want > slots
}

// AwaitedPool returns the pool of the last epoch of a job if an owner of shards waits for slots of it, and else "".
func (s *Snapshot) AwaitedPool(segment string) string {
	p := s.Plans[segment].Plan
	if p == nil || p.Last().Job().Pool == "" {
		return ""
	}
	pool, records := p.Last().Job().Pool, s.Pools()
	for inc := range p.Owners {
		if records.Waits(pool, inc) {
			return pool
		}
	}
	return ""
}
