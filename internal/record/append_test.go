package record

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// TestClaims_AreEncodedLikeJSON holds the encoding by hand against that of package json.
func TestClaims_AreEncodedLikeJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	maybe := func() bool { return rng.IntN(3) == 0 }
	number := func() int {
		if maybe() {
			return 0
		}
		return rng.IntN(1 << rng.IntN(40))
	}
	instant := func() Instant {
		if maybe() {
			return 0
		}
		return Instant(rng.Int64N(1 << 62))
	}
	shards := func() shardset.Set {
		s := shardset.Of(rng.IntN(MaxShards))
		for range rng.IntN(5) {
			lo := rng.IntN(MaxShards)
			s = s.Union(shardset.Range(lo, lo+rng.IntN(10)))
		}
		return s
	}
	texts := []string{"", "settle", "日次", "a\"b\\c", "tab\tnul\x00del\x7f", "<&>", "\xff\u2028"}
	text := func() string { return texts[rng.IntN(len(texts))] }
	for range 2000 {
		c := &Claims{Job: text()}
		for range rng.IntN(3) {
			c.Marks = append(c.Marks, MarkGroup{shards(), Mark{number(), instant(), number(), uint64(number()), number()}})
		}
		for range rng.IntN(3) {
			c.Running = append(c.Running, RunGroup{shards(), Ref{number(), instant(), uint64(number()), number(), maybe()}})
		}
		if maybe() {
			c.Counts = Counts{uint64(number()), uint64(number()), uint64(number()), uint64(number()), uint64(number())}
		}
		if maybe() {
			c.Last = &Outcome{At: instant(), Error: text()}
			if maybe() {
				c.Last.Failed = shards()
			}
		}
		type plain Claims
		want, err := marshal((*plain)(c))
		require.NoError(t, err)
		got, err := Encode(c)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}

func BenchmarkEncodeClaims(b *testing.B) {
	c := &Claims{
		Job:     "settle",
		Marks:   Marks{{shardset.Range(0, 4), Mark{Gen: 1, Fire: 1_700_000_000_000_000_000, Attempt: 1}}},
		Running: Runs{{shardset.Range(0, 4), Ref{Gen: 1, Fire: 1_700_000_000_000_000_000, Attempt: 1}}},
		Counts:  Counts{Claimed: 100, Succeeded: 96},
		Last:    &Outcome{At: 1_700_000_000_000_000_000},
	}
	b.Run("by hand", func(b *testing.B) {
		for b.Loop() {
			if _, err := Encode(c); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("by package json", func(b *testing.B) {
		type plain Claims
		for b.Loop() {
			if _, err := marshal((*plain)(c)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodePlan(b *testing.B) {
	value, err := Encode(somePlan(b))
	require.NoError(b, err)
	for b.Loop() {
		if _, err := DecodePlan(value); err != nil {
			b.Fatal(err)
		}
	}
}
