package fleet_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/fleet"
	"github.com/rota-dev/rota/internal/judge"
)

var (
	rounds = flag.Int("fleet.rounds", 2, "how often each fault strikes")
	soak   = flag.Duration("fleet.soak", 20*time.Second, "how long random faults strike")
	seed   = flag.Uint64("fleet.seed", uint64(time.Now().UnixNano()), "of what is random")
)

func TestMain(m *testing.M) {
	fleet.Main()
	m.Run()
}

var servers = []struct {
	name  string
	start func(ctx context.Context, members int) (*fleet.Server, error)
}{
	{"etcd", fleet.Etcd},
	{"zookeeper", fleet.ZooKeeper},
}

// on runs f with a fleet of three processes on each server, and judges it.
func on(t *testing.T, f func(ctx context.Context, t *testing.T, faults *fleet.Faults)) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			ctx := t.Context()
			server, err := s.start(ctx, 1)
			require.NoError(t, err)
			defer server.Stop()
			fl, err := fleet.Start(ctx, server, fleet.Config{
				Instances: 3, Jobs: 4, Shards: 4, Every: time.Second, Takes: 400 * time.Millisecond,
				TTL: 3 * time.Second, Dir: t.TempDir(), Trail: 24,
			})
			require.NoError(t, err)
			defer fl.Close()
			faults := &fleet.Faults{Fleet: fl, Rand: rand.New(rand.NewPCG(*seed, 0))}
			fl.Judge.Report().Seed = *seed
			require.NoError(t, fl.Until(ctx, "the fleet has begun", time.Minute, func() bool {
				return fl.Judge.Whole(3) && fl.Judge.Report().Claims > 0
			}))
			f(ctx, t, faults)
			require.NoError(t, fl.Finish(ctx))
			tell(t, faults)
		})
	}
}

func tell(t *testing.T, f *fleet.Faults) {
	t.Logf("%s\n  kills %d, pauses %d, short cuts %d, server restarts %d; %d bytes of dead sessions reached the store\n"+
		"  after kills: to the end of the session %s; from there to claims elsewhere %s",
		f.Judge.Report(), f.Kills, f.Pauses, f.Cuts, f.Restarts, f.Late, judge.Quantiles(f.Gone), judge.Quantiles(f.Again))
}

// TestFleet_SurvivesEachFault has each fault strike some times, one after the other.
func TestFleet_SurvivesEachFault(t *testing.T) {
	on(t, func(ctx context.Context, t *testing.T, f *fleet.Faults) {
		for range *rounds {
			require.NoError(t, f.KillLeader(ctx))
			require.NoError(t, f.PauseLong(ctx))
			require.NoError(t, f.CutShort(ctx))
			require.NoError(t, f.RestartServer(ctx))
		}
		require.GreaterOrEqual(t, f.Judge.Report().Reruns, *rounds, "of what those who were killed ran")
		if strings.HasSuffix(t.Name(), "/etcd") { // ZooKeeper closes the connections of a session that it ends
			require.Positive(t, f.Late, "requests of dead sessions have reached the store")
		}
	})
}

// TestFleet_Soak has faults strike at random.
func TestFleet_Soak(t *testing.T) {
	on(t, func(ctx context.Context, t *testing.T, f *fleet.Faults) {
		for end := time.Now().Add(*soak); time.Now().Before(end); {
			require.NoError(t, f.Any(ctx))
		}
	})
}
