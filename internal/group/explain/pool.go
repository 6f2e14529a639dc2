package explain

import (
	"fmt"
	"strings"

	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/group/pools"
	"github.com/rota-dev/rota/internal/record"
)

// Pools are the records of the pools of a group.
type Pools struct {
	Sizes   map[string]int           // those that operators have set
	Slots   map[string]record.Slots  // by pool
	Demands map[string]record.Demand // by incarnation
}

// held returns the slots of a pool that an incarnation has, and whether it waits for more.
func (p *Pools) held(pool, inc string) (slots int, waits bool) {
	d := p.Demands[inc].Pools[pool]
	slots, _ = pools.Held(p.Slots[pool].Grants[inc], d)
	return slots, d.Want > slots
}

// freeSlots returns how many runs an owner may claim by its announcement: any number unless it waits for slots. Without the
// records of pools, and for shards without an owner, pools hold nothing up.
func (r *Records) freeSlots(inc string) map[string]int {
	free := map[string]int{}
	for i := range r.Plan.Epochs {
		pool := r.Plan.Epochs[i].Job().Pool
		free[pool] = record.MaxShards
		if r.Pools == nil || inc == "" {
			continue
		}
		if slots, waits := r.Pools.held(pool, inc); waits || slots == 0 {
			free[pool] = 0
		}
	}
	return free
}

// checkPool checks whether the run has a slot of its pool. It has no result for a job without a pool.
func (s *subject) checkPool() result {
	if s.epoch == nil || s.epoch.Job().Pool == "" || s.Pools == nil {
		return result{}
	}
	pool := s.epoch.Job().Pool
	if !s.meets(claiming.NoSlot) {
		return pass("pool %s holds nothing up", pool)
	}
	size, sized := s.Pools.Sizes[pool]
	if !sized {
		return stop("set its size: rota set-pool "+pool+" N", "the run waits for a slot of pool %s, which has no size", pool)
	}
	taken, holders := 0, []string{}
	for _, inc := range sortedKeys(s.Pools.Slots[pool].Grants) {
		if slots, _ := s.Pools.held(pool, inc); slots > 0 {
			taken += slots
			holders = append(holders, fmt.Sprintf("%s (%d)", record.InstanceOf(inc), slots))
		}
	}
	detail := fmt.Sprintf("the run waits for pool %s: %d of %d slots taken", pool, taken, size)
	if len(holders) > 0 {
		detail += " by " + strings.Join(holders, ", ")
	}
	return stop("wait for its turn, or give the pool a larger size", "%s", detail)
}
