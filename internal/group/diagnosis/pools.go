package diagnosis

import (
	"fmt"
	"maps"
	"slices"
)

// checkPools reports jobs whose runs wait for a slot of a pool without a size. It reports none if the record of the sizes cannot be read.
func (d *diagnosis) checkPools() {
	if _, damaged := d.Unreadable[d.Keys.GroupControl()]; damaged {
		return
	}
	var sizes map[string]int
	if d.Group.GroupControl != nil {
		sizes = d.Group.Pools
	}
	for _, segment := range slices.Sorted(maps.Keys(d.Plans)) {
		p := d.Plans[segment].Plan
		pool := p.Last().Job().Pool
		if _, sized := sizes[pool]; sized || pool == "" || p.Paused || d.isRetiring(segment) {
			continue
		}
		d.add(Finding{
			Error, Stuck, p.Job, d.Keys.GroupControl(), fmt.Sprintf("the job names pool %s, which has no size, so its runs wait", pool),
			"set its size: rota set-pool " + pool + " N",
		})
	}
}
