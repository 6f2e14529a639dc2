package budget_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

func TestBudget_ReshardTakesTwoCommits(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, shards := range []int{10, 1000, 10_000} {
			t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
				k.on(t, func(t *testing.T, s store) {
					f := newFleet(t, s)
					defer f.stop()
					for i := range 4 { // all lose shards to the fifth
						f.start(fmt.Sprint("i", i), idle(shards))
					}
					f.awaitAssigned(1)
					f.applyCommits(s.count(t).commits)

					f.start("late", idle(shards))
					n := f.countUntilAssigned(1)
					plans := commitsWith("/plan/", n.commits)
					t.Logf("one instance joined, and %d of %d shards moved: %d commits of plans, the largest record %d bytes; in total %d transactions, %d reads, %d events",
						shards/5, shards, len(plans), largestValue(plans), n.txns, n.reads, n.events)
					assert.Len(t, plans, 2)
					assert.LessOrEqual(t, largestValue(plans), registry.PortableLimits.ValueBytes)
				})
			})
		}
	})
}

func TestBudget_CrashOfOneOfTenInstances(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		k.on(t, func(t *testing.T, s store) {
			const all = 1000
			f := newFleet(t, s)
			defer f.stop()
			for i := range 10 {
				f.start(fmt.Sprint("i", i), jobs(all, idle(1))...)
			}
			f.awaitAssigned(all)
			f.applyCommits(s.count(t).commits)

			leader := f.leader
			heal := s.silence(leader)
			defer heal()
			n := f.countUntilAssigned(all, leader)
			elections, failovers, failedOver := len(commitsWith("/election/leader", n.commits)), commitsWith("/plan/", n.commits), 0
			for _, c := range failovers {
				failedOver += keysWith(c, "/plan/")
			}
			t.Logf("the leader of %d jobs crashed: %d election, %d jobs failed over in %d commits; in total %d transactions, %d reads, %d events",
				all, elections, failedOver, len(failovers), n.txns, n.reads, n.events)
			assert.Equal(t, 1, elections)
			assert.NotEqual(t, leader, f.leader)
			assert.Equal(t, all/10, failedOver)
			assert.GreaterOrEqual(t, failedOver, 20*len(failovers))
			assert.LessOrEqual(t, n.txns, 30, "including refused transactions and those that make reads fresh")
		})
	})
}

// largestValue returns the size of the largest written value.
func largestValue(commits []judge.Commit) int {
	most := 0
	for _, c := range commits {
		for _, op := range c.Then {
			most = max(most, len(op.Value))
		}
	}
	return most
}
