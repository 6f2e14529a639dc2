package simulate_test

import (
	"flag"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/simulate"
)

var (
	defines = flag.Int("simulate.defines", long.Pick(4, 100), "how many small fleets with defined jobs to simulate")
	outages = flag.Bool("simulate.outages", long.Pick(false, true), "whether all processes of fleets with defined jobs crash at once")
	seeds   = flag.Int("simulate.seeds", long.Pick(10, 200), "how many small fleets to simulate")
	first   = flag.Uint64("simulate.first", 1, "the first of them")
	part    = flag.Float64("simulate.part", 1, "the part of its simulated time for which each small fleet runs")
	seed    = flag.Uint64("simulate.seed", 0, "simulate only this seed; 0: all")
	trail   = flag.Int("simulate.trail", 12, "how many lines to print about the commits before a violation")
	day     = flag.Duration("simulate.day", 24*time.Hour, "how long the fleet of ten runs")
	verbose = flag.Bool("simulate.log", false, "print the logs of the fleet")

	transcript = flag.String("simulate.transcript", "", "a file for all commits and calls of the one seed")
	report     = flag.String("simulate.report", "", "a file for the numbers of the one seed, which is simulated in this process")
)

// run simulates a fleet in a bubble, which fails the test if it leaves a goroutine.
func run(t *testing.T, c simulate.Config) *judge.Report {
	t.Helper()
	c.Trail = *trail
	if *verbose {
		c.Logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var r *judge.Report
	synctest.Test(t, func(t *testing.T) {
		var err error
		r, err = simulate.Run(c)
		t.Log(r)
		require.NoError(t, r.Err())
		require.NoError(t, err, "seed %d", c.Seed)
	})
	return r
}

// small configures a fleet of a few instances under heavy faults.
func small(seed uint64) simulate.Config {
	c := simulate.Config{
		Seed: seed, Instances: 3 + int(seed%3), Jobs: 3, Shards: 4, Every: time.Minute, Takes: 8 * time.Second,
		For: time.Hour, Faults: 18 * time.Second, TTL: 10 * time.Second, Drain: 10 * time.Second, Operators: true, Levels: true, Policies: true,
	}
	if seed%8 > 3 {
		c.Skew = 100 * time.Millisecond
	}
	switch seed % 4 {
	case 0:
		c.Latency = 2 * time.Millisecond
	case 1: // fires, faults and messages are so frequent that they overlap
		c.Every, c.Takes, c.For, c.Faults = 5*time.Second, 1200*time.Millisecond, 12*time.Minute, 3*time.Second
		c.TTL, c.Drain, c.Jitter = 4*time.Second, 3*time.Second, 400*time.Millisecond
	case 2:
		c.Jitter = 100 * time.Millisecond
		if seed%8 == 6 { // many small jobs that fire together, with runs so short that claims record their ends
			c.Jobs, c.Shards, c.Every, c.Takes, c.Faults = 80, 1, time.Second, 400*time.Millisecond, 6*time.Second
			c.TTL, c.Drain, c.For = 4*time.Second, 3*time.Second, 3*time.Minute
		}
	case 3:
		c.Long = 75 * time.Second // longer than the time between fires
	}
	if seed%2 == 1 {
		c.Drain = time.Second // so that a leaving process hands most runs back
	}
	if seed%5 < 2 && seed%8 != 6 {
		c.Pool = 2 + int(seed%4)
	}
	c.Zones, c.Weights = seed%3 == 1, seed%4 > 1
	if seed%3 == 1 {
		c.Clocks = 40 * time.Millisecond
		if c.Skew == 0 && c.Every == time.Minute {
			c.Clocks = 2 * time.Second
		}
	}
	if seed%3 == 2 && c.Skew == 0 && c.Every == time.Minute {
		c.Wrong = 12 * time.Second
		if seed%8 == 2 {
			c.Wrong = time.Hour // watermarks of that time are ahead of all clocks afterwards
		}
	}
	if seed%5 < 2 {
		c.Grace = c.TTL * time.Duration(1+seed%3)
	}
	c.For = time.Duration(float64(c.For) * *part)
	return c
}

// defining configures a fleet of a few instances under heavy faults, while two programs define, change and delete jobs.
func defining(seed uint64) simulate.Config {
	c := simulate.Config{
		Seed: seed, Instances: 3 + int(seed%2), Jobs: 1, Shards: 2, Every: time.Minute, Takes: 8 * time.Second, Defined: 4 + int(seed%3),
		For: time.Hour, Faults: 24 * time.Second, TTL: 10 * time.Second, Drain: 10 * time.Second, Outages: *outages,
	}
	switch seed % 4 {
	case 0:
		c.Latency = 2 * time.Millisecond
	case 1:
		c.Jitter = 400 * time.Millisecond
	case 2:
		c.Jitter, c.Drain = 100*time.Millisecond, time.Second
	case 3:
		c.Long = 75 * time.Second // longer than the time between fires
	}
	if seed%3 == 1 {
		c.Skew, c.Clocks = 100*time.Millisecond, 40*time.Millisecond
	}
	c.Weights = seed%8 > 5
	if seed%3 > 0 {
		c.Pool = 2
	}
	c.For = time.Duration(float64(c.For) * *part)
	return c
}

func TestFleetsOfDefinedJobsKeepTheirPromises(t *testing.T) {
	simulateSeeds(t, *defines, defining)
}

func TestSmallFleetsKeepTheirPromises(t *testing.T) {
	simulateSeeds(t, *seeds, small)
}

// simulateSeeds simulates n seeds, each in a process of its own, in which it is called again.
func simulateSeeds(t *testing.T, n int, config func(seed uint64) simulate.Config) {
	t.Helper()
	if *report != "" {
		simulateAlone(t, config)
		return
	}
	from := *first
	if *seed != 0 {
		from, n = *seed, 1
	}
	todo := make(chan uint64)
	go func() {
		defer close(todo)
		for i := range n {
			todo <- from + uint64(i)
		}
	}()
	var mu sync.Mutex
	sum, dir, printed := newTotals(), t.TempDir(), time.Now()
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for seed := range todo {
				r, err := simulateInProcess(t.Context(), t.Name(), seed, dir)
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else {
					sum.add(r)
				}
				if n == 1 {
					t.Log(r)
				}
				if time.Since(printed) > time.Minute {
					printed = time.Now()
					t.Log(sum.progress())
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(sum)
}

func TestAFleetOfTenKeepsItsPromisesForADay(t *testing.T) {
	began := time.Now()
	kinds := []simulate.Fault{simulate.Crash, simulate.Partition, simulate.LoseRequests, simulate.LoseReplies, simulate.LostReply}
	r := run(t, simulate.Config{
		Seed: max(*seed, 1), Instances: 10, Jobs: 50, Shards: 4, Every: time.Minute, Takes: 9 * time.Second, Grain: 9 * time.Second,
		For: *day, Faults: 6 * time.Minute, Kinds: kinds, TTL: 10 * time.Second, Drain: 10 * time.Second,
	})
	t.Logf("a day took %v", time.Since(began).Round(time.Millisecond))
	struck := 0
	for _, kind := range kinds {
		struck += r.Faults[string(kind)]
	}
	days := int(*day / (24 * time.Hour)) // in a part of one, chance decides
	require.GreaterOrEqual(t, struck, max(1, 200*days), "crashes, partitions and lost replies")
	require.GreaterOrEqual(t, r.Reruns, max(1, 100*days), "re-runs")
}
