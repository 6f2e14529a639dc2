package gather

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// gathered collects the batches and the reports of a gathering of shards.
type gathered struct {
	*Gathering[int, int]

	mu      sync.Mutex
	batches [][]int
	reports [][]int
}

func newGathered(shards ...int) *gathered {
	l := &gathered{}
	l.Gathering = New[int](shards, func(ends []int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reports = append(l.reports, ends)
	})
	return l
}

func (l *gathered) join(shard int) bool { return l.Join(shard, shard, l.note) }

func (l *gathered) note(batch []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(batch)
	l.batches = append(l.batches, batch)
}

// seen returns the batches and reports so far.
func (l *gathered) seen() (batches, reports [][]int) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.batches), slices.Clone(l.reports)
}

func gathers(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestGathering_Batches(t *testing.T) {
	gathers(t, "begin when the last member has joined", func(t *testing.T) {
		l := newGathered(1, 2, 3)
		assert.True(t, l.join(3))
		assert.True(t, l.join(1))
		batches, _ := l.seen()
		assert.Empty(t, batches)
		assert.True(t, l.join(2))
		batches, _ = l.seen()
		assert.Equal(t, [][]int{{1, 2, 3}}, batches)
		time.Sleep(time.Minute)
		batches, _ = l.seen()
		assert.Len(t, batches, 1)
	})
	gathers(t, "begin when the last member has left", func(t *testing.T) {
		l := newGathered(1, 2)
		l.join(2)
		l.Leave(1)
		batches, _ := l.seen()
		assert.Equal(t, [][]int{{2}}, batches)
		assert.False(t, l.join(1))
	})
	gathers(t, "do not begin if all members have left", func(t *testing.T) {
		l := newGathered(1, 2)
		l.Leave(1)
		l.Leave(2)
		l.Leave(2)
		batches, _ := l.seen()
		assert.Empty(t, batches)
	})
	gathers(t, "begin without members that take longer than a second, which are another", func(t *testing.T) {
		l := newGathered(1, 2, 3, 4)
		l.join(1)
		time.Sleep(500 * time.Millisecond)
		l.join(2)
		time.Sleep(500 * time.Millisecond)
		batches, _ := l.seen()
		assert.Equal(t, [][]int{{1, 2}}, batches)
		l.join(3)
		time.Sleep(900 * time.Millisecond)
		batches, _ = l.seen()
		assert.Len(t, batches, 1)
		l.join(4)
		batches, _ = l.seen()
		assert.Equal(t, [][]int{{1, 2}, {3, 4}}, batches)
	})
	gathers(t, "have no member twice, and no stranger", func(t *testing.T) {
		l := newGathered(1)
		assert.True(t, l.join(1))
		assert.False(t, l.join(1))
		assert.False(t, l.join(9))
	})
}

func TestGathering_Ends(t *testing.T) {
	gathers(t, "are reported together, by the last", func(t *testing.T) {
		l := newGathered(1, 2, 3)
		l.EndTogether([]int{1, 3})
		assert.True(t, l.End(3, 3))
		assert.False(t, l.End(2, 2), "it ended before")
		_, reports := l.seen()
		assert.Empty(t, reports)
		assert.True(t, l.End(1, 1))
		_, reports = l.seen()
		assert.Equal(t, [][]int{{3, 1}}, reports)
		assert.False(t, l.End(1, 1))
	})
	gathers(t, "do not wait for others for longer than 100 ms", func(t *testing.T) {
		l := newGathered(1, 2, 3)
		l.EndTogether([]int{1, 2, 3})
		l.End(1, 1)
		time.Sleep(50 * time.Millisecond)
		l.End(2, 2)
		time.Sleep(50 * time.Millisecond)
		_, reports := l.seen()
		assert.Equal(t, [][]int{{1, 2}}, reports)
		l.End(3, 3)
		_, reports = l.seen()
		assert.Equal(t, [][]int{{1, 2}, {3}}, reports)
	})
	gathers(t, "are reported at once on demand", func(t *testing.T) {
		l := newGathered(1, 2)
		l.EndTogether([]int{1, 2})
		l.End(1, 1)
		l.ReportEnds()
		l.ReportEnds()
		_, reports := l.seen()
		assert.Equal(t, [][]int{{1}}, reports)
	})
}

// Each member is in one batch, and each end in one report, whatever the order and the pauses.
func TestGathering_UnderStress(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			shards := rng.Perm(20)
			l := newGathered(shards...)
			var want []int
			var all sync.WaitGroup
			for _, s := range shards {
				pause, leaves := time.Duration(rng.IntN(3000))*time.Millisecond*time.Duration(rng.IntN(2)), rng.IntN(4) == 0
				if !leaves {
					want = append(want, s)
				}
				all.Go(func() {
					time.Sleep(pause)
					if !leaves {
						assert.True(t, l.join(s))
						l.EndTogether([]int{s})
						assert.True(t, l.End(s, s))
					}
					l.Leave(s)
				})
			}
			all.Wait()
			time.Sleep(2 * time.Second)
			batches, reports := l.seen()
			assert.ElementsMatch(t, want, slices.Concat(batches...), "seed %d", seed)
			assert.ElementsMatch(t, want, slices.Concat(reports...), "seed %d", seed)
		})
	}
}
