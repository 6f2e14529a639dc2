package budget_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/schedule"
)

// Two hundred instances in one group own a small job and five shards of a large job each.
func TestBudget_TwoHundredMembers(t *testing.T) {
	defer onecpu.Hold()()
	const members, small, shards = 200, 200, 1000
	synctest.Test(t, func(t *testing.T) {
		p := &phases{t: t}
		defer p.log()
		s := newMemory()
		f := newFleet(t, s)
		defer f.stop()
		runs := &runsByJob{}
		const every = time.Minute
		offered := func() []executor.Job {
			like := executor.Job{Name: "small", Shards: 1, Schedule: schedule.Every(every), Handler: runs}
			large := like
			large.Name, large.Shards = "large", shards
			return append(jobs(small, like), large)
		}
		for i := range members {
			f.start(fmt.Sprintf("i%03d", i), offered()...)
		}
		f.awaitAssigned(small + 1)
		sleepUntilHalf(every)

		f.countPhase()
		runs.reset()
		time.Sleep(every)
		c := f.countPhase()
		p.check("all jobs fire", c, atMost{2 * members, 2 * 2 * 450 * members, 0, 0})
		assert.Len(t, runs.byInstance(), members)
		assert.Zero(t, runs.latest())

		f.start("late", offered()...)
		c = f.countUntilAssigned(small + 1)
		p.check("an instance joins", c, planChange(t, c, members+1, small+1))

		f.countPhase()
		f.leave("late")
		c = f.countUntilAssigned(small + 1)
		p.check("it leaves", c, planChange(t, c, members, 0))

		f.countPhase()
		heal := s.silence("i100")
		c = f.countUntilAssigned(small+1, "i100")
		p.check("an instance crashes", c, planChange(t, c, members-1, 0))
		heal()
		f.countUntilAssigned(small + 1)

		sleepUntilHalf(every)
		f.countPhase()
		time.Sleep(every / 3)
		p.check("nothing is due for 20 s", f.countPhase(), atMost{})
	})
}

// planChange returns the bounds of a change of the fleet to this many instances. Each instance receives
// each plan that changes, and a joining one also the listed plans.
func planChange(t *testing.T, c counts, instances, listed int) atMost {
	t.Helper()
	plans := totalKeys("/plan/", c.commits)
	largest := largestValue(commitsWith("/plan/", c.commits))
	t.Logf("%d plans were written, the largest has %d bytes", plans, largest)
	assert.LessOrEqual(t, largest, 64*instances, "the plan of a job that all instances own shards of")
	assert.LessOrEqual(t, plans, 2*4, "two of each job with a shard that moves")
	return atMost{5, 16<<10 + plans*64*instances, 10, plans*instances + listed + 20}
}
