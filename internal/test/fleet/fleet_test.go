package fleet_test

import (
	"flag"
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
					t.Parallel() // most of the time is spent waiting
					trial.Dir = t.TempDir()
					trial.Progress = func(line string) { t.Log(line) }
					out, err := trial.Run(t.Context())
					require.NoError(t, err)
					var table strings.Builder
					require.NoError(t, fleet.WriteTable(&table, []fleet.Outcome{out}))
					t.Logf("\n%s%s", &table, out.Report)
					assert.Positive(t, out.Report.Claims)
					if trial.Pool > 0 {
						assert.Positive(t, out.Report.PoolMost, "runs of the pool at once")
					}
					if trial.Chains > 0 {
						assert.Positive(t, out.Report.Releases, "fires of jobs that follow others")
					}
					for _, k := range trial.Kinds {
						assert.GreaterOrEqual(t, out.Report.Faults[k.Name], *rounds, k.Name)
					}
				})
			}
		}
	}
}
