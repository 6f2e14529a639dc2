package pgfleet_test

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
	"github.com/rota-dev/rota/registry/postgres/internal/pgfleet"
)

var (
	rounds = flag.Int("fleet.rounds", long.Pick(1, 3), "rounds of each kind of fault")
	seed   = flag.Uint64("fleet.seed", uint64(time.Now().UnixNano()), "of random numbers")
)

func TestMain(m *testing.M) {
	fleet.Main(pgfleet.Schemes())
	m.Run()
}

// TestFleet_KeepsItsPromises runs a trial of each sort of fleet on PostgreSQL: by default the faults of processes and of the server through a
// pooler, fail-over with a standby, all others with a connection to the server.
func TestFleet_KeepsItsPromises(t *testing.T) {
	for _, store := range pgfleet.Stores() {
		all := fleet.Trial{
			Store: store, Members: 1, Kinds: fleet.Kinds(), Rounds: *rounds * len(fleet.Kinds()), Chains: 2, TTL: 3 * time.Second, Seed: *seed,
		}
		if store.Name == pgfleet.Standby {
			all.Kinds = slices.DeleteFunc(all.Kinds, func(k fleet.Kind) bool { return k.Name != "restart-servers" })
		}
		for i, trial := range fleet.Trials(all) {
			if (store.Name == "postgres") == (i == 0) && !long.Pick(false, true) {
				continue
			}
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
			})
		}
	}
}
