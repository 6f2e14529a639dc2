package heap

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type element struct{ rank, place int }

type byRank struct{}

func (byRank) Before(a, b *element) bool { return a.rank < b.rank }
func (byRank) Place(x *element) *int     { return &x.place }

type numbers struct{}

func (numbers) Before(a, b int) bool { return a < b }
func (numbers) Place(int) *int       { return nil }

// TestHeap compares a heap with a list that is sorted after each change.
func TestHeap(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		all := make([]*element, 1+rng.IntN(20))
		for i := range all {
			all[i] = &element{}
		}
		var h Heap[*element, byRank]
		in := map[*element]bool{}
		for range 300 {
			x := all[rng.IntN(len(all))]
			switch n := rng.IntN(10); {
			case n < 6:
				x.rank = rng.IntN(30)
				h.Keep(x, true)
				in[x] = true
			case n < 8:
				h.Keep(x, false)
				delete(in, x)
			case h.Len() == 0:
			case n == 8:
				delete(in, h.Pop())
			case !in[x]:
				x.rank = rng.IntN(30)
				delete(in, h.First())
				h.ReplaceFirst(x)
				in[x] = true
			}
			require.Equal(t, len(in), h.Len(), "seed %d", seed)
			for x := range h.All() {
				require.True(t, in[x], "seed %d", seed)
				require.LessOrEqual(t, h.First().rank, x.rank, "seed %d", seed)
			}
			for _, x := range all {
				require.Equal(t, in[x], x.place > 0, "seed %d: an element that is in no heap has no place", seed)
			}
		}
	}
}

func TestHeap_OfElementsWithoutPlaces(t *testing.T) {
	var h Heap[int, numbers]
	for _, n := range []int{3, 1, 2} {
		h.Push(n)
	}
	h.ReplaceFirst(5)
	assert.ElementsMatch(t, []int{2, 3, 5}, slices.Collect(h.All()))
	var got []int
	for h.Len() > 0 {
		got = append(got, h.Pop())
	}
	assert.True(t, slices.IsSortedFunc(got, cmp.Compare[int]))
}
