package sqltest

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
)

var (
	loadFor    = flag.Duration("load.for", 6*time.Second, "how long TestLoad records runs")
	loadOutage = flag.Duration("load.outage", 2*time.Second, "how long the database is stopped in TestLoad, after a third of the time")
	loadRate   = flag.Int("load.rate", 2000, "fires per second in TestLoad, each of another job with one shard")
)

// Runs end at a high rate, and the database is stopped for a while: no run is held up, each failure is stored, and what
// was dropped is counted.
func TestLoad(t *testing.T) {
	forEachDatabase(t, func(t *testing.T, d *database) {
		db := d.migrated(t)
		store := d.store(t, db, history.SQLOptions{})
		rec := history.New(store, history.Options{Namespace: "billing", Logger: quiet})
		outage := make(chan struct{})
		t.Cleanup(func() { <-outage })
		go func() {
			defer close(outage)
			<-time.After(*loadFor / 3)
			resume := d.stop(t)
			<-time.After(*loadOutage)
			resume()
		}()
		total := int(loadFor.Seconds() * float64(*loadRate))
		took := make([]time.Duration, 0, total)
		failures, most := 0, 0
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		began := time.Now()
		for n := 0; n < total; {
			<-tick.C
			for due := min(total, int(time.Since(began).Seconds()*float64(*loadRate))); n < due; n++ {
				r := loadRun(n)
				if r.Outcome == history.Failed {
					failures++
				}
				before := time.Now()
				rec.Add(r)
				took = append(took, time.Since(before))
			}
			most = max(most, rec.Stats().Pending)
		}
		<-outage
		added := time.Since(began)
		before := time.Now()
		shutDown(t, rec)

		stats := rec.Stats()
		slices.Sort(took)
		at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))] }
		t.Logf("%d runs in %v, shutdown in %v; Add p50 %v, p99 %v, p99.9 %v, longest %v", total, added.Round(time.Millisecond), time.Since(before).Round(time.Millisecond), at(.5), at(.99), at(.999), at(1))
		fires, stored := count(t, db, "SELECT count(*) FROM rota_fire_part"), count(t, db, "SELECT count(*) FROM rota_run WHERE failure")
		runs := count(t, db, "SELECT coalesce(sum(ok + failed), 0) FROM rota_fire_part")
		t.Logf("stored %d fires with %d runs, %d of %d failures, %d runs that succeeded; at most %d waiting; dropped %+v",
			fires, runs, stored, failures, count(t, db, "SELECT count(*) FROM rota_run WHERE NOT failure"), most, stats.Dropped)

		require.Less(t, at(.99), 5*time.Millisecond)
		require.Less(t, at(1), *loadOutage, "no run is held up by the outage")
		require.Equal(t, failures, stored)
		require.Zero(t, stats.Dropped.Failures)
		require.Zero(t, stats.Dropped.Refused)
		require.EqualValues(t, total, int64(runs)+stats.Dropped.Runs)
		require.EqualValues(t, total, int64(fires)+stats.Dropped.Fires)
	})
}

// loadRun returns the run of the n-th fire. One of a hundred fails.
func loadRun(n int) history.Run {
	job := fmt.Sprintf("job-%04d", n%*loadRate)
	fire := start.Add(time.Duration(n / *loadRate) * time.Second)
	r := history.Run{
		ID: fmt.Sprintf("%s/0/%s/1", job, fire.Format(time.RFC3339)), Job: job, Fire: fire, Shards: 1, Attempt: 1, Reason: "scheduled",
		Instance: "web-1", Fence: uint64(n), Started: fire.Add(time.Millisecond), Ended: fire.Add(5 * time.Millisecond), Outcome: history.Succeeded,
	}
	if n%100 == 0 {
		r.Outcome, r.Error = history.Failed, "ledger is locked by another transaction"
	}
	return r
}
