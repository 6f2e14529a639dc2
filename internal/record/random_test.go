package record

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// TestEncode_LosesNothing encodes and decodes random records.
func TestEncode_LosesNothing(t *testing.T) {
	const seed = 1
	m := maker{rand.New(rand.NewPCG(seed, seed))}
	for i := range 1000 {
		claims := m.claims()
		b, err := Encode(claims)
		require.NoError(t, err)
		decodedClaims, err := Decode[Claims](b)
		require.NoError(t, err, "record %d: %s", i, b)
		require.Equal(t, *claims, decodedClaims, "record %d: %s", i, b)

		plan := m.plan(t)
		b, err = Encode(plan)
		require.NoError(t, err)
		decodedPlan, extra, err := decodeKeeping[Plan](b) // DecodePlan refuses most random values
		require.NoError(t, err, "record %d: %s", i, b)
		require.Empty(t, extra)
		for i := range decodedPlan.Epochs {
			decodedPlan.Epochs[i].job = plan.Epochs[i].job
		}
		require.Equal(t, plan, decodedPlan, "record %d: %s", i, b)
	}
}

// TestDecode_AcceptsOrRejects changes bytes of records. A record that is still accepted keeps its
// values when it is encoded and decoded again.
func TestDecode_AcceptsOrRejects(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, seed))
	accepted := map[bool]int{}
	for range 2_000 {
		b := []byte(fullPlan)
		for range 1 + rng.IntN(2) {
			const bytes = `0123456789"{}[]:,-.eEtrufalsn \TZ` + "\x00\xff"
			b[rng.IntN(len(b))] = bytes[rng.IntN(len(bytes))]
		}
		plan, err := DecodePlan(b)
		accepted[err == nil]++
		if err != nil {
			continue
		}
		again, err := Encode(plan)
		require.NoError(t, err, "seed %d: %s", seed, b)
		same, err := DecodePlan(again)
		require.NoError(t, err, "seed %d: %s", seed, b)
		require.Equal(t, plan, same, "seed %d: %s", seed, b)
	}
	require.Greater(t, accepted[true], 200)
	require.Greater(t, accepted[false], 200)
}

// maker makes random records.
type maker struct{ *rand.Rand }

func (m maker) maybe() bool { return m.IntN(3) == 0 }

func (m maker) number() int {
	if m.maybe() {
		return 0
	}
	return m.IntN(1 << m.IntN(40))
}

func (m maker) instant() Instant {
	if m.maybe() {
		return 0
	}
	return Instant(m.Int64N(1 << 62))
}

func (m maker) text() string {
	texts := []string{"", "settle", "日次", "a\"b\\c", "tab\tnul\x00del\x7f", "<&>", "\u2028"}
	return texts[m.IntN(len(texts))]
}

func (m maker) shards() shardset.Set {
	s := shardset.Of(m.IntN(MaxShards))
	for range m.IntN(5) {
		lo := m.IntN(MaxShards)
		s = s.Union(shardset.Range(lo, lo+m.IntN(10)))
	}
	return s
}

func (m maker) counts() (c Counts) {
	if m.maybe() {
		c = Counts{uint64(m.number()), uint64(m.number()), uint64(m.number()), uint64(m.number()), uint64(m.number()), uint64(m.number()), uint64(m.number())}
	}
	return c
}

func (m maker) marks() (marks Watermarks) {
	for range m.IntN(3) {
		marks = append(marks, WatermarkGroup{m.shards(), Watermark{m.number(), m.instant(), m.number(), uint64(m.number()), m.number()}})
	}
	return marks
}

func (m maker) ref() Ref {
	return Ref{m.number(), m.instant(), uint64(m.number()), m.number(), m.maybe(), m.number(), m.number(), m.instant(), Duration(m.number())}
}

func (m maker) runs() (runs Runs) {
	for range m.IntN(3) {
		runs = append(runs, RunGroup{m.shards(), m.ref()})
	}
	return runs
}

func (m maker) ends() (ended Instant, failures Failures) {
	for range m.IntN(3) {
		failures = append(failures, Failure{RunGroup{m.shards(), m.ref()}, m.number(), m.instant(), m.text(), m.number()%2 == 0, uint64(m.number()), m.number(), m.text(), m.number()%2 == 0})
	}
	return m.instant(), failures
}

func (m maker) claims() *Claims {
	c := &Claims{Job: m.text(), Watermarks: m.marks(), Running: m.runs(), Reruns: m.runs(), Counts: m.counts()}
	c.Ended, c.Failures = m.ends()
	return c
}

func (m maker) plan(t *testing.T) *Plan {
	p := somePlan(t)
	p.Job, p.Paused, p.Stopped, p.Problem = m.text(), m.maybe(), m.maybe(), m.text()
	p.Watermarks, p.Reruns, p.Counts = m.marks(), m.runs(), m.counts()
	p.Epochs[0].From, p.Epochs[0].Until = m.instant(), m.instant()
	for range m.IntN(3) {
		p.Owners[m.text()] = m.shards()
	}
	if m.maybe() {
		p.Frozen = m.shards()
	}
	if m.maybe() {
		p.Disabled = m.shards()
	}
	for range m.IntN(3) {
		trigger := Trigger{Number: uint64(m.number()), At: m.instant(), Epoch: m.number(), Param: m.text(), Token: m.text(), Work: m.text(), Again: m.maybe()}
		if m.maybe() {
			shards := m.shards()
			trigger.Shards = &shards
		}
		p.Triggers = append(p.Triggers, trigger)
	}
	p.Resets, p.Unoffered = uint64(m.number()), m.instant()
	p.Ended, p.Failures = m.ends()
	for range m.IntN(3) {
		p.Decisions = append(p.Decisions, Decision{m.instant(), uint64(m.number()), m.text(), m.text(), m.number(), nil})
	}
	return p
}

func BenchmarkEncodeClaims(b *testing.B) {
	c := &Claims{
		Job:        "settle",
		Watermarks: Watermarks{{shardset.Range(0, 4), Watermark{Epoch: 1, Fire: 1_700_000_000_000_000_000, Attempt: 1}}},
		Running:    Runs{{shardset.Range(0, 4), Ref{Epoch: 1, Fire: 1_700_000_000_000_000_000, Attempt: 1}}},
		Counts:     Counts{Claimed: 100, Succeeded: 96},
		Ended:      1_700_000_000_000_000_000,
	}
	for b.Loop() {
		if _, err := Encode(c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodePlan(b *testing.B) {
	p := somePlan(b)
	for b.Loop() {
		if _, err := Encode(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeClaims(b *testing.B) {
	for b.Loop() {
		if _, err := Decode[Claims]([]byte(fullClaims)); err != nil {
			b.Fatal(err)
		}
	}
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
