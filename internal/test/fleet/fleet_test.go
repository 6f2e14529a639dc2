package fleet_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/fleet"
	"github.com/rota-dev/rota/internal/test/long"
)

var (
	rounds = flag.Int("fleet.rounds", long.Pick(1, 3), "rounds of each kind of fault")
	small  = flag.Int("fleet.small-jobs", 0, "jobs of one shard that all fire each second, beside the others")
	seed   = flag.Uint64("fleet.seed", uint64(time.Now().UnixNano()), "of random numbers")
)

func TestMain(m *testing.M) {
	fleet.Main(nil)
	m.Run()
}

// bases are the commits whose processes are tested beside those of this version, and how many names of defined jobs they know: the last
// commit before posted acts, and the last one without kinds. Only long runs take them: they need the history of the repository.
var bases = []struct {
	commit  string
	defines int
}{
	{"4d304db0", 8},
	{"de3956a", 0},
}

func TestMixedFleet_KeepsItsPromises(t *testing.T) {
	kinds := slices.DeleteFunc(fleet.Kinds(), func(k fleet.Kind) bool { return k.Name == "edits" })
	for _, base := range long.Pick(nil, bases) {
		program, err := fleet.BuildBase(t.Context(), base.commit, fleet.Stores()[0].Chaos, t.TempDir())
		require.NoError(t, err)
		for _, store := range fleet.Stores() {
			for _, members := range store.Members {
				for _, trial := range fleet.Trials(fleet.Trial{
					Store: store, Members: members, Kinds: kinds, Rounds: 3 * len(kinds), Base: program,
					Chains: 2, Pool: 4, Defines: base.defines, TTL: 3 * time.Second, Seed: *seed,
				}) {
					t.Run(trial.String(), func(t *testing.T) { judgeTrial(t, trial) })
				}
			}
		}
	}
}

// TestFleet_KeepsItsPromises runs a trial of each sort of fleet on each store, with one member and with three.
func TestFleet_KeepsItsPromises(t *testing.T) {
	for _, store := range fleet.Stores() {
		for _, members := range store.Members {
			all := fleet.Trial{
				Store: store, Members: members, Kinds: fleet.Kinds(), Rounds: *rounds * len(fleet.Kinds()),
				Small: *small, Chains: 2, Pool: long.Pick(0, 4), TTL: 3 * time.Second, Seed: *seed,
			}
			for _, trial := range fleet.Trials(all) {
				t.Run(trial.String(), func(t *testing.T) {
					out := judgeTrial(t, trial)
					if trial.Pool > 0 {
						assert.Positive(t, out.Report.PoolMost, "runs of the pool at once")
					}
					for _, k := range trial.Kinds {
						assert.GreaterOrEqual(t, out.Report.Faults[k.Name], *rounds, k.Name)
					}
				})
			}
		}
	}
}

// judgeTrial runs a trial, beside others since most of the time is spent waiting.
func judgeTrial(t *testing.T, trial fleet.Trial) fleet.Outcome {
	t.Parallel()
	trial.Dir = t.TempDir()
	trial.Progress = func(line string) { t.Log(line) }
	out, err := trial.Run(t.Context())
	require.NoError(t, err)
	var table strings.Builder
	require.NoError(t, fleet.WriteTable(&table, []fleet.Outcome{out}))
	t.Logf("\n%s%s", &table, out.Report)
	assert.Positive(t, out.Report.Claims)
	if trial.Chains > 0 {
		assert.Positive(t, out.Report.Releases, "fires of jobs that follow others")
	}
	return out
}
