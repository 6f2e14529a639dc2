package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/group/claiming"
	"github.com/rota-dev/rota/internal/record"
)

// freeSlots returns how many runs an owner may claim by its announcement: any number unless it waits for slots. For shards without
// an owner, pools hold nothing up.
func (r *Records) freeSlots(inc string) map[string]int {
	free := map[string]int{}
	for i := range r.Plan.Epochs {
		pool := r.Plan.Epochs[i].Job().Pool
		free[pool] = record.MaxShards
		if inc != "" && pool != "" && r.Pools.Waits(pool, inc) {
			free[pool] = 0
		}
	}
	return free
}

// checkPool checks whether the run has a slot of its pool. It has no result for a job without a pool.
func (s *subject) checkPool() result {
	run, waits := s.find(claiming.NoSlot)
	if _, dropped := s.findDrop(); !waits || dropped { // a later run waits then
		if s.epoch == nil || s.epoch.Job().Pool == "" {
			return result{}
		}
		return pass("pool %s holds nothing up", s.epoch.Job().Pool)
	}
	pool := s.epochOf(run).Job().Pool
	size, sized := s.Pools.Sizes[pool]
	if !sized {
		return stop("set its size: rota set-pool "+pool+" N", "the run waits for a slot of pool %s, which has no size", pool)
	}
	taken, slots := 0, s.Pools.Holders(pool)
	for _, n := range slots {
		taken += n
	}
	detail := fmt.Sprintf("the run waits for pool %s: %d of %d slots taken", pool, taken, size)
	if taken > 0 {
		detail += " by " + listHolders(slots)
	}
	return stop("wait for its turn, or give the pool a larger size", "%s", detail)
}

// maxHolders bounds the instances that a text names.
const maxHolders = 5

// listHolders names the incarnations with the most slots.
func listHolders(slots map[string]int) string {
	incs := slices.SortedFunc(maps.Keys(slots), func(a, b string) int {
		return cmp.Or(cmp.Compare(slots[b], slots[a]), cmp.Compare(a, b))
	})
	var names []string
	for _, inc := range incs[:min(len(incs), maxHolders)] {
		names = append(names, fmt.Sprintf("%s (%d)", record.InstanceOf(inc), slots[inc]))
	}
	if more := len(incs) - len(names); more > 0 {
		names = append(names, count.Of(more, "more instance"))
	}
	return strings.Join(names, ", ")
}
