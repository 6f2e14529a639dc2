package record

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

// TestScan_ReadsLikePackageJSON compares what is read from records that this version
// writes, and from the same with a byte changed here and there.
func TestScan_ReadsLikePackageJSON(t *testing.T) {
	last := somePlan(t).Epochs[0].From.Add(1)
	shards := shardset.Of(1, 2, 3, 9)
	plan := somePlan(t)
	plan.Marks = Marks{{shards, Mark{Gen: 1, Fire: last, Attempt: 2, Trigger: 3, TriggerAttempt: 1}}}
	plan.Reruns = Runs{{shards, Ref{Gen: 1, Fire: last, Attempt: 2, Missed: true, HandedBack: 1}}, {shards, Ref{Gen: 1, Fire: last, Trigger: 7, Attempt: 1}}}
	plan.Triggers = []Trigger{{Number: 7, At: last, Gen: 1, Param: "2026-01", Shards: &shards}, {Number: 8, At: last}}
	plan.Counts = Counts{1, 2, 3, 4, 5, 6}
	plan.Paused, plan.Stopped = true, true
	plan.Frozen, plan.Disabled = shards, shardset.Of(4)
	plan.Problem = "日次"
	claims := &Claims{
		Job: "settle", Marks: plan.Marks, Running: plan.Reruns, Reruns: plan.Reruns, Counts: plan.Counts,
		Ended: last, Failures: Failures{{plan.Reruns[0], 4, last, "it failed"}},
	}
	plan.Ended, plan.Failures = claims.Ended, claims.Failures
	plan.Decisions = []Decision{{last, 7, "a", "give 0-3 to a", 2}}
	t.Run("plans", func(t *testing.T) { readsLikePackageJSON(t, plan) })
	t.Run("claims", func(t *testing.T) { readsLikePackageJSON(t, claims) })
	t.Run("definitions", func(t *testing.T) {
		readsLikePackageJSON(t, &Job{
			Name: "settle", Revision: 3, Shards: 12, Strategy: "average", OnCrash: CrashFail, MaxAttempts: 5, StartPaused: true,
			RunOn: map[string]string{"pool": "gpu", "zone": ""},
		})
	})
}

func readsLikePackageJSON[T any](t *testing.T, v *T) {
	written, err := Encode(v)
	require.NoError(t, err)
	require.True(t, scan(written, any(new(T)).(scanned)), "%s", written)
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, seed))
	odd := 0
	for i := range 20_000 {
		b := append([]byte(nil), written...)
		for range rng.IntN(3) * min(i, 1) {
			const bytes = `0123456789"{}[]:,-.eEtrufalsn \TZ` + "\x00\xff"
			b[rng.IntN(len(b))] = bytes[rng.IntN(len(bytes))]
		}
		got, want := new(T), new(T)
		if !scan(b, any(got).(scanned)) {
			odd++
			continue
		}
		require.NoError(t, json.Unmarshal(b, want), "seed %d: %s", seed, b)
		require.Equal(t, want, got, "seed %d: %s", seed, b)
	}
	require.Greater(t, odd, 1000)
	require.Less(t, odd, 19_000)
}
