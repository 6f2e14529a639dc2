package budget_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

// What a fire costs, with the leader's part included, when some have passed: two commits an
// instance whatever the number of shards, small ones, no reads and nothing else.
func TestBudget_FireOfShardsThatEndTogether(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		var all costTable
		for _, shards := range []int{1, 10, 100, 1000} {
			t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
				k.on(t, func(t *testing.T, s store) {
					w := watchFires(t, k, s, 3, 20, executor.Job{Name: "job", Shards: shards})
					assert.LessOrEqual(t, w.largestBytes(), 1024)
					all.add(w)
				})
			})
		}
		t.Log(all.String())
	})
}

// A failure is on record with its error, and some of those before it are.
func TestBudget_FireOfShardsThatFail(t *testing.T) {
	fails := executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
		return fmt.Errorf("shard %d: %s", r.Shard, strings.Repeat("no such table ", 100))
	})
	onEach(t, func(t *testing.T, k kind) {
		k.on(t, func(t *testing.T, s store) {
			w := watchFires(t, k, s, 3, 20, executor.Job{Name: "job", Shards: 100, Handler: fails})
			assert.LessOrEqual(t, w.largestBytes(), 1024)
			var one costTable
			one.add(w)
			t.Log(one.String())
		})
	})
}

// What a fire costs of a job of which only claims are tracked: a commit an instance, with which
// go the ends of the fire before.
func TestBudget_FireOfWhichOnlyTheClaimIsTracked(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		var all costTable
		for _, shards := range []int{1, 100} {
			t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
				k.on(t, func(t *testing.T, s store) {
					w := watchFires(t, k, s, 3, 20, executor.Job{Name: "job", Shards: shards, Tracking: executor.TrackClaims})
					if k.virtual {
						assert.Equal(t, len(w.turns), w.txns)
					}
					all.add(w)
				})
			})
		}
		t.Log(all.String())
	})
}

func TestBudget_TwentyJobsDueTogetherAreClaimedInOneCommit(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		k.on(t, func(t *testing.T, s store) {
			w := watchFires(t, k, s, 1, 5, jobs(20, executor.Job{Name: "job", Shards: 4})...)
			for at, n := range w.turns {
				if n.commits <= 2 && n.claims > 0 {
					assert.Equal(t, 20, n.jobs, "jobs in the only commit that claims of %v", at)
				}
			}
			var one costTable
			one.add(w)
			t.Log(one.String())
		})
	})
}
