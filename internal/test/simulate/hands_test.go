package simulate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/simulate"
)

var (
	handsSeeds = flag.Int("simulate.hands", 10, "how many fleets to simulate whose records are changed by hand; -simulate.first and -simulate.seed choose them")
	handsKind  = flag.String("simulate.hands-kind", "", "the kind of all records that are changed; all kinds if empty")
	handsAct   = flag.String("simulate.hands-act", "", "the change of all of them; all changes if empty")
)

// handled is a small fleet whose records are changed by hand.
func handled(seed uint64) simulate.HandsConfig {
	c := simulate.HandsConfig{Rounds: 8, Kind: *handsKind, Act: *handsAct, Config: simulate.Config{
		Seed: seed, Instances: 3 + int(seed%3), Jobs: 3, Shards: 4, Every: time.Minute, Takes: 8 * time.Second,
		TTL: 10 * time.Second, Drain: 10 * time.Second,
	}}
	if seed%2 == 1 {
		c.Every, c.Takes, c.TTL, c.Drain = 5*time.Second, 1200*time.Millisecond, 4*time.Second, 3*time.Second
	}
	switch seed % 4 {
	case 1:
		c.Jitter = 200 * time.Millisecond
	case 2:
		c.Latency = 2 * time.Millisecond
	}
	if seed%5 == 0 {
		c.Grace = c.TTL
	}
	return c
}

func TestSmallFleetsHealFromHands(t *testing.T) {
	if *report != "" {
		handsAlone(t)
		return
	}
	from, n := *first, *handsSeeds
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
	sum, dir := &simulate.HandsReport{}, t.TempDir()
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for seed := range todo {
				r := &simulate.HandsReport{}
				err := aloneIn(t.Context(), "TestSmallFleetsHealFromHands", seed, dir, r, "-simulate.hands-kind="+*handsKind, "-simulate.hands-act="+*handsAct)
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else {
					sum.Add(r)
					if n == 1 {
						t.Log(strings.Join(r.Story, "\n"))
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(sum)
}

// handsAlone simulates the one seed in this process.
func handsAlone(t *testing.T) {
	cryptotest.SetGlobalRandom(t, *seed) // ids are random
	c := handled(*seed)
	if *verbose {
		c.Logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if *transcript != "" {
		var all bytes.Buffer
		c.Transcript = &all
		defer func() { require.NoError(t, os.WriteFile(*transcript, all.Bytes(), 0o600)) }()
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := simulate.RunHands(c)
		require.NoError(t, err)
		b, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*report, b, 0o600))
	})
}
