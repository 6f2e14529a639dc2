package record

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

func TestPlan_Note(t *testing.T) {
	t.Run("keeps the latest decisions, oldest first", func(t *testing.T) {
		p := somePlan(t)
		for i := range 20 {
			p.Note(Decision{At: Instant(i), What: fmt.Sprint("assign ", i)})
		}
		require.Len(t, p.Decisions, maxDecisions)
		assert.Equal(t, Decision{At: 12, What: "assign 12"}, p.Decisions[0])
		assert.Equal(t, Decision{At: 19, What: "assign 19"}, p.Decisions[maxDecisions-1])
	})
	t.Run("keeps a text once, with its latest instant and the number of earlier decisions", func(t *testing.T) {
		p := somePlan(t)
		p.Note(Decision{At: 1, What: "failover"})
		for i := range 10 {
			p.Note(Decision{At: Instant(10 + i), What: "freeze"})
			p.Note(Decision{At: Instant(20 + i), What: "unfreeze"})
		}
		assert.Equal(t, []Decision{
			{At: 1, What: "failover"}, {At: 19, What: "freeze", Again: 9}, {At: 29, What: "unfreeze", Again: 9},
		}, p.Decisions)
	})
	t.Run("does not change clones", func(t *testing.T) {
		p := somePlan(t)
		p.Note(Decision{What: "one"})
		p.Note(Decision{What: "two"})
		c := p.Clone()
		c.Note(Decision{What: "one"})
		assert.Equal(t, []Decision{{What: "one"}, {What: "two"}}, p.Decisions)
	})
	t.Run("keeps decisions within a bounded number of bytes", func(t *testing.T) {
		for _, text := range []string{"x", "é", "\x00", "\xff", `"`} {
			p := somePlan(t)
			before, err := Encode(p)
			require.NoError(t, err)
			for i := range 20 {
				p.Note(Decision{At: 1_700_000_000_000_000_001, Term: 1 << 62, By: strings.Repeat("n", 128), What: fmt.Sprint(i, strings.Repeat(text, 1000))})
			}
			after, err := Encode(p)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(after)-len(before), maxDecisions*450, "%q", text)
		}
	})
}

func TestFailures(t *testing.T) {
	failure := func(minute int, shards shardset.Set, err string) Failure {
		at := Instant(1_700_000_000_000_000_000 + minute*60_000_000_000)
		return Failure{RunGroup{shards, Ref{Epoch: 1, Fire: at, Attempt: 1}}, 0, at + 1, err, false, 0, 0, "", false}
	}
	t.Run("of one run are merged, with the error of the first and the instant of the last", func(t *testing.T) {
		one, two := failure(1, shardset.Of(1), "first"), failure(1, shardset.Of(3), "second")
		two.At += 5
		two.LastTrigger = 7
		want := one
		want.Shards, want.At, want.LastTrigger = shardset.Of(1, 3), two.At, 7
		assert.Equal(t, Failures{want}, Failures{}.With(one).With(two))
	})
	t.Run("of two attempts are kept apart", func(t *testing.T) {
		one, two := failure(1, shardset.Of(1), ""), failure(1, shardset.Of(1), "")
		two.Attempt = 2
		assert.Len(t, Failures{}.With(one, two), 2)
	})
	t.Run("are the latest, sorted by the instant of their ends", func(t *testing.T) {
		fs := Failures{}.With(failure(2, shardset.Of(0), ""), failure(9, shardset.Of(0), ""))
		for _, i := range []int{1, 8, 7, 3} {
			fs = fs.With(failure(i, shardset.Of(1), ""))
		}
		var fires []Instant
		for _, f := range fs {
			fires = append(fires, f.Fire)
		}
		assert.IsIncreasing(t, fires)
		assert.Equal(t, failure(9, shardset.Of(0), ""), fs[len(fs)-1])
		assert.GreaterOrEqual(t, len(fs), 3)
		assert.LessOrEqual(t, len(fs), maxFailures)
	})
	t.Run("have a fire that is named to the microsecond", func(t *testing.T) {
		const second = Instant(1_700_000_000_000_000_000)
		at := func(fire Instant) Failure { return Failure{RunGroup: RunGroup{Ref: Ref{Fire: fire}}} }
		fs := Failures{at(second), at(second + 123_456_789), at(second + 200_000_001), at(second + 200_000_002)}
		for named, want := range map[Instant]Instant{
			second: second, second + 123_456_000: second + 123_456_789, second + 123_000_000: second + 123_000_000, second + 200_000_002: second + 200_000_002,
		} {
			fire, err := fs.FireAt(named)
			require.NoError(t, err)
			assert.Equal(t, want, fire)
		}
		_, err := fs.FireAt(second + 200_000_000)
		assert.ErrorContains(t, err, "one of the fires")
	})
	t.Run("do not change the receiver", func(t *testing.T) {
		fs := Failures{}.With(failure(1, shardset.Of(1), "first"))
		fs.With(failure(1, shardset.Of(2), "second"))
		assert.Equal(t, Failures{failure(1, shardset.Of(1), "first")}, fs)
	})
	t.Run("name a bounded number of ranges and count the other shards", func(t *testing.T) {
		var odd shardset.Set
		for s := 1; s < MaxShards; s += 2 {
			odd.Add(s)
		}
		f := Failures{}.With(failure(1, odd, ""))[0]
		assert.Equal(t, "1,3,5,7,9,11,13,15", f.Shards.String())
		assert.Equal(t, MaxShards/2, f.Shards.Len()+f.More)
	})
	t.Run("keep the newest within a bounded number of bytes", func(t *testing.T) {
		for _, text := range []string{"x", "é", "\x00", "\xff", `"`} {
			fs := Failures{}
			for i := range 20 {
				fs = fs.With(failure(i, shardset.Range(0, MaxShards), strings.Repeat(text, 1000)))
				size := 0
				for _, f := range fs {
					size += EncodedLen(f)
				}
				require.LessOrEqual(t, size, maxFailuresBytes)
				require.Equal(t, failure(i, shardset.Of(), "").Fire, fs[len(fs)-1].Fire)
			}
		}
	})
}

func TestCut(t *testing.T) {
	t.Run("leaves a short text", func(t *testing.T) { assert.Equal(t, "it failed", cut("it failed", 9)) })
	t.Run("cuts between characters and appends dots", func(t *testing.T) {
		s := cut(strings.Repeat("é", 200), 200)
		assert.True(t, utf8.ValidString(s))
		assert.Equal(t, strings.Repeat("é", 98)+"...", s)
	})
	t.Run("counts the bytes of the JSON form", func(t *testing.T) {
		s := cut(errors.New(strings.Repeat("\x00", 200)).Error(), 200)
		assert.LessOrEqual(t, EncodedLen(s), 202)
		assert.NotEmpty(t, strings.TrimSuffix(s, "..."))
	})
}
