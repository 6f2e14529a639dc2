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

	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/internal/test/simulate"
)

var (
	editSeeds  = flag.Int("simulate.edits", long.Pick(5, 100), "how many fleets with record edits to simulate; -simulate.first and -simulate.seed choose them")
	editKind   = flag.String("simulate.edit-kind", "", "the kind of all edited records, such as plan; all kinds if empty")
	editChange = flag.String("simulate.edit-change", "", "the change of all of them, such as delete; all changes if empty")
)

// smallEdited configures a small fleet with record edits.
func smallEdited(seed uint64) simulate.EditsConfig {
	c := simulate.EditsConfig{Rounds: 8, Kind: recordedit.Kind(*editKind), Change: recordedit.Change(*editChange), Config: simulate.Config{
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

func TestSmallFleetsHealAfterRecordEdits(t *testing.T) {
	if *report != "" {
		simulateEditsAlone(t)
		return
	}
	from, n := *first, *editSeeds
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
	sum, dir := &simulate.EditsReport{}, t.TempDir()
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for seed := range todo {
				r := &simulate.EditsReport{}
				err := runTestInProcess(t.Context(), "TestSmallFleetsHealAfterRecordEdits", seed, dir, r, "-simulate.edit-kind="+*editKind, "-simulate.edit-change="+*editChange)
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else {
					sum.Add(r)
					if n == 1 {
						t.Log(strings.Join(r.Steps, "\n"))
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Log(sum)
}

// simulateEditsAlone simulates one seed in this process.
func simulateEditsAlone(t *testing.T) {
	cryptotest.SetGlobalRandom(t, *seed) // ids are random
	c := smallEdited(*seed)
	if *verbose {
		c.Logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if *transcript != "" {
		var all bytes.Buffer
		c.Transcript = &all
		defer func() { require.NoError(t, os.WriteFile(*transcript, all.Bytes(), 0o600)) }()
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := simulate.RunEdits(c)
		require.NoError(t, err)
		b, err := json.Marshal(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*report, b, 0o600))
	})
}
