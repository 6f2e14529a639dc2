package budget_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

// A fire in the steady state, the leader's part included, costs two small commits per
// instance, regardless of the number of shards, and no reads.
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

// A failure is recorded with its error, next to recent earlier ones.
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

// With TrackClaims, a fire costs one commit per instance, which also records the ends of
// the previous fire.
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
