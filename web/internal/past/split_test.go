package past

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzSplit(f *testing.F) {
	for _, n := range []int{0, 1, 63, 64, 65, 127, 128, 129, 10_000, 1 << 20} {
		f.Add(0, n)
		f.Add(157, n)
	}
	f.Fuzz(func(t *testing.T, first, n int) {
		if first < 0 || first > 1<<20 || n < 0 || n > 1<<20 {
			return
		}
		of := Range{first, first + n - 1}
		rows, width := Split(of)
		require.LessOrEqual(t, len(rows), MaxRows)
		next := first
		for i, r := range rows {
			require.Equal(t, next, r.First, "no shard is left out, none is in two rows")
			require.GreaterOrEqual(t, r.Last, r.First)
			if i < len(rows)-1 {
				require.Equal(t, width, r.Len())
			}
			require.LessOrEqual(t, r.Len(), width)
			next = r.Last + 1
		}
		require.Equal(t, first+n, next)
	})
}

func TestSplit_ReachesSingleShardsAfterFewClicks(t *testing.T) {
	of, clicks := Range{0, 9_999}, 0
	for of.Len() > 1 {
		rows, _ := Split(of)
		of = rows[len(rows)-1]
		clicks++
	}
	require.LessOrEqual(t, clicks, 3)
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		of     Range
		shards int
		want   Range
	}{
		{Range{0, -1}, 10, Range{0, 9}},
		{Range{3, 5}, 10, Range{3, 5}},
		{Range{3, 50}, 10, Range{3, 9}},
		{Range{30, 50}, 10, Range{0, 9}},
		{Range{-5, 2}, 10, Range{0, 2}},
		{Range{0, -1}, 0, Range{0, -1}},
	} {
		require.Equal(t, c.want, clip(c.of, c.shards), "%v of %d", c.of, c.shards)
	}
}
