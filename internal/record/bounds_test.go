package record

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/internal/test/cost"
	"github.com/rota-dev/rota/internal/test/hostile"
	"github.com/rota-dev/rota/registry"
)

// decoders decode each kind of record, by name.
var decoders = map[string]func([]byte) (any, error){
	"plan":          func(b []byte) (any, error) { return DecodePlan(b) },
	"control":       func(b []byte) (any, error) { return DecodeControl(b) },
	"group control": func(b []byte) (any, error) { return DecodeGroupControl(b) },
	"claims":        func(b []byte) (any, error) { return DecodeClaims(b) },
	"ends":          func(b []byte) (any, error) { return DecodeEnds(b) },
	"definition":    func(b []byte) (any, error) { def, _, err := DecodeDefinition(b); return def, err },
	"member":        func(b []byte) (any, error) { return Decode[Member](b) },
	"instance":      func(b []byte) (any, error) { return Decode[Instance](b) },
	"seat":          func(b []byte) (any, error) { return Decode[Seat](b) },
	"leader":        func(b []byte) (any, error) { return Decode[Leader](b) },
	"meta":          func(b []byte) (any, error) { return DecodeMeta(b) },
}

// The cost that one decode may have. A record of 128 KiB, the most that is read, may be inflated to 4 MiB.
const (
	mostAllocated  = 32 << 20
	mostDecodeTime = 100 * time.Millisecond
	mostOfTrivial  = 1 << 20 // of a record that is refused by its size alone
)

func TestDecode_RefusesHostileRecordsAtABoundedCost(t *testing.T) {
	for kind, records := range hostile.Records() {
		for reason, r := range records {
			t.Run(kind+": "+reason, func(t *testing.T) {
				b := r.Of("settle")
				var err error
				allocated := cost.Allocated(func() { _, err = decoders[kind](b) })
				took := cost.Least(3, func() { _, err = decoders[kind](b) })
				require.ErrorContains(t, err, reason)
				assert.Less(t, took, max(mostDecodeTime, 500*cost.Unit()), "the latter is more where code is instrumented")
				assert.Less(t, len(err.Error()), 500)
				assert.Less(t, allocated, uint64(mostAllocated))
				if len(b) > maxStored {
					assert.Less(t, allocated, uint64(mostOfTrivial))
				}
			})
		}
	}
}

func TestDecode_ReadsWhatEarlierVersionsWroteAtTheirExtremes(t *testing.T) {
	for name, refused := range map[string]string{
		"plan-largest":                "",
		"control-largest":             "",
		"control-15-params-of-700KiB": "inflate: longer than",
		"control-last-trigger":        "is above",
		"member-10000-jobs":           "",
		"member-25000-jobs":           "",
		"claims-largest":              "",
		"definition-largest":          "",
		"definition-revision":         "is above",
		"meta-fence":                  "",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile("testdata/de3956a/" + name)
			require.NoError(t, err)
			kind, _, _ := strings.Cut(name, "-")
			v, err := decoders[kind](b)
			if refused != "" {
				require.ErrorContains(t, err, refused)
				return
			}
			require.NoError(t, err)
			_, err = Encode(v)
			require.NoError(t, err, "what is read can be written again")
		})
	}
}

// TestEncode_ReturnsOnlyWhatIsRead encodes records whose counters are at and beyond their bounds.
func TestEncode_ReturnsOnlyWhatIsRead(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	numbers := []uint64{0, 1, MaxNumber - 1, MaxNumber, MaxNumber + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	sizes := []int{0, 1, 8192, maxStringBytes - 2, maxStringBytes + 1, maxInflated + 1}
	number := func() uint64 { return numbers[rng.IntN(len(numbers))] }
	text := func() string { return strings.Repeat("x", sizes[rng.IntN(len(sizes))]) }
	encoded := map[bool]int{}
	for range 60 {
		n, s := number(), text()
		trigger := max(number(), 1)
		plan := somePlan(t)
		plan.Problem = s
		plan.Counts.Claimed = n
		control := &Control{Job: "settle", LastTrigger: trigger, Triggers: []Trigger{{Number: trigger, At: 1, Param: s}}, Resets: n, Retiring: &Act{What: s}}
		for kind, v := range map[string]any{
			"plan": plan, "control": control,
			"group control": &GroupControl{Acts: Acts{{What: s}}},
			"claims":        Claims{Job: "settle", Counts: Counts{Claimed: n}, Failures: Failures{{Error: s}}},
			"ends":          Ends{Incarnation: "a.1", Claims: Claims{Job: "settle", Ended: 1, Counts: Counts{Lost: n}}},
			"member":        Member{Name: s, Weight: int(n)},
			"instance":      Instance{Host: s, PID: int(n)},
			"seat":          Seat{Successors: []string{s}},
			"leader":        Leader{Incarnation: s},
			"meta":          Meta{Format: Format, FenceBase: n},
			"definition":    json.RawMessage(fmt.Sprintf(`{"name":"settle","shards":1,"revision":%d}`, n)),
		} {
			b, err := Encode(v)
			encoded[err == nil]++
			if err == nil {
				_, err = decoders[kind](b)
				require.NoError(t, err, "%s with number %d and a text of %d bytes", kind, n, len(s))
			}
		}
	}
	assert.Greater(t, encoded[true], 100)
	assert.Greater(t, encoded[false], 100)
}

func TestDecode_CutsTheTextsOfFailures(t *testing.T) {
	text := `{"job":"settle","failures":[{"error":"` + strings.Repeat("é", 100_000) + `"},{"error":"short"}]}`
	c, err := DecodeClaims(hostile.Pack(text))
	require.NoError(t, err)
	assert.LessOrEqual(t, len(c.Failures[0].Error), maxFailureBytes)
	assert.True(t, utf8.ValidString(c.Failures[0].Error))
	assert.Equal(t, "short", c.Failures[1].Error)
}

func TestEncode_RefusesWhatIsTooLarge(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(1, 1))}
	claims := &Claims{Job: "settle"}
	for i := range MaxShards {
		claims.Watermarks = append(claims.Watermarks, WatermarkGroup{shardset.Of(i), Watermark{m.Int(), m.instant(), 1, m.Uint64() >> 2, 1}})
		claims.Watermarks[i].Epoch >>= 2
	}
	_, err := Encode(claims)
	require.ErrorIs(t, err, registry.ErrTooLarge, "random numbers cannot be deflated to 128 KiB")
}

func TestCounts_AddStaysReadable(t *testing.T) {
	all := Counts{Claimed: MaxNumber - 1, Lost: MaxNumber}
	sum := all.Add(all)
	assert.Equal(t, Counts{Claimed: MaxNumber, Lost: MaxNumber}, sum)
	_, err := Encode(Claims{Job: "settle", Counts: sum})
	require.NoError(t, err)
}

func TestWatermarks_FoldOfManyGroupsIsThatOfFew(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 200 {
		total := 1 + rng.IntN(60)
		some := func() (ms Watermarks) {
			for s := range total {
				if rng.IntN(4) > 0 {
					ms = ms.Raise(shardset.Of(s), Watermark{1, Instant(rng.IntN(4)), rng.IntN(2), uint64(rng.IntN(3)), rng.IntN(2)})
				}
			}
			return ms
		}
		ms, others := some(), some()
		shards := shardset.Range(rng.IntN(total), total)
		want := ms
		for _, g := range others {
			if part := g.Shards.Intersect(shards); !part.IsZero() {
				want = want.Raise(part, g.Watermark)
			}
		}
		require.Equal(t, want.sorted(), ms.foldByShard(others, shards).sorted(), "seed %d", seed)
		require.Equal(t, want, ms.Fold(others, shards), "seed %d", seed)
	}
}

func TestWatermarks_FoldCostsNoMoreForAMarkOfEachShard(t *testing.T) {
	var ms, others Watermarks
	for s := range MaxShards {
		ms = append(ms, WatermarkGroup{shardset.Of(s), Watermark{Epoch: 1, Fire: Instant(s + 1)}})
		others = append(others, WatermarkGroup{shardset.Of(s), Watermark{Epoch: 1, Fire: Instant(3*MaxShards - s)}})
	}
	var folded Watermarks
	allocated := cost.Allocated(func() { folded = ms.Fold(others, shardset.Range(0, MaxShards)) })
	require.Len(t, folded, MaxShards)
	require.Equal(t, Instant(3*MaxShards), folded.Of(0).Fire)
	require.Less(t, allocated, uint64(16<<20), "pairs of groups would allocate gigabytes")
}

func TestRuns_MergeOfManyGroupsIsThatOfFew(t *testing.T) {
	const seed = 12
	rng := rand.New(rand.NewPCG(seed, seed))
	some := func(n int) (rs Runs) {
		for range n {
			rs = rs.With(shardset.Of(rng.IntN(80)), Ref{Epoch: 1, Fire: Instant(rng.IntN(40)), Attempt: 1 + rng.IntN(2)})
		}
		return rs
	}
	for range 100 {
		rs, others := some(rng.IntN(60)), some(rng.IntN(60))
		want := rs
		for _, g := range others {
			want = want.With(g.Shards, g.Ref)
		}
		got := rs.Merge(others)
		require.Equal(t, len(want), len(got), "seed %d", seed)
		for s := range 80 {
			a, _ := want.Of(s)
			b, _ := got.Of(s)
			require.Equal(t, a, b, "seed %d", seed)
		}
	}
}
