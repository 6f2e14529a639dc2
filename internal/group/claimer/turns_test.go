package claimer

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Under overload, jobs take turns: each claims one fire before any claims a second.
func TestClaimer_TurnsUnderOverload(t *testing.T) {
	const fresh = 5000
	short := func(Run) time.Duration { return time.Millisecond }
	job := func(i int) string { return fmt.Sprintf("job-%04d", i) }
	t.Run("a job that is 10,000 fires behind claims one while 5,000 fresh jobs claim theirs", func(t *testing.T) {
		intervals := []time.Duration{time.Millisecond}
		for range fresh {
			intervals = append(intervals, 20*time.Second)
		}
		runClaimer(t, intervals, short, func(t *testing.T, f *claimingFixture) {
			began := time.Now()
			f.server.Delay("me", 250*time.Millisecond, 250*time.Millisecond)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			var first, last time.Time
			for i := 1; i <= fresh; i++ {
				n := slices.IndexFunc(f.starts[job(i)], began.Before)
				require.NotEqual(t, -1, n, job(i))
				at := f.starts[job(i)][n]
				if first.IsZero() || at.Before(first) {
					first = at
				}
				if at.After(last) {
					last = at
				}
			}
			require.Greater(t, last.Sub(first), time.Second, "more jobs are due than a few commits claim")
			meanwhile := 0
			for _, at := range f.starts[job(0)] {
				if at.After(first) && at.Before(last) {
					meanwhile++
				}
			}
			assert.LessOrEqual(t, meanwhile, 1)
			claimed := len(f.starts[job(0)])
			assert.Greater(t, time.Since(f.starts[job(0)][0]).Milliseconds()-int64(claimed), int64(10_000), "fires behind")
		})
	})
	t.Run("the order within a turn is that of the due times, whatever the names", func(t *testing.T) {
		var intervals []time.Duration
		for i := range fresh {
			intervals = append(intervals, 20*time.Second+time.Duration(i%71)*time.Millisecond)
		}
		runClaimer(t, intervals, short, func(t *testing.T, f *claimingFixture) {
			began := time.Now()
			f.server.Delay("me", 250*time.Millisecond, 250*time.Millisecond)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			type start struct{ due, at time.Time }
			var all []start
			for i := range fresh {
				for _, at := range f.starts[job(i)] {
					if due := began.Truncate(intervals[i]).Add(intervals[i]); !at.Before(due) && at.Before(due.Add(intervals[i])) {
						all = append(all, start{due, at})
						break
					}
				}
			}
			require.Len(t, all, fresh)
			slices.SortFunc(all, func(a, b start) int { return cmp.Or(a.due.Compare(b.due), a.at.Compare(b.at)) })
			for i := 1; i < fresh; i++ {
				require.False(t, all[i].at.Before(all[i-1].at), "due at %v and %v, begun at %v and %v", all[i-1].due, all[i].due, all[i-1].at, all[i].at)
			}
		})
	})
	t.Run("no job falls behind another when more fires are due than commits can claim", func(t *testing.T) {
		intervals := everySecond(fresh)
		runClaimer(t, intervals, short, func(t *testing.T, f *claimingFixture) {
			f.server.Delay("me", time.Second, time.Second)
			time.Sleep(time.Minute)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			least, most := len(f.starts[job(0)]), len(f.starts[job(0)])
			for i := range fresh {
				n := len(f.starts[job(i)])
				least, most = min(least, n), max(most, n)
			}
			assert.LessOrEqual(t, most-least, 2)
			assert.Less(t, most, 60, "the store is too slow for all")
		})
	})
}
