package simulate_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/test/judge"
)

// totals are the sums over many seeds. A seed without a failover or without a move proves little and does not
// count.
type totals struct {
	began           time.Time
	seeds, counted  int
	claims, reruns  int
	handedBack      int // runs handed back at a drain
	overlapping     int // fires skipped as they came due during a run
	expired         int // fires skipped as they were owed for too long
	delays          int // claims of fires that count from the end of a run
	ended, released int // fires that plans showed as ended, and those that other jobs followed
	retries         int // failed runs that were put on record to be made again
	givenUp         int // pending re-runs that were counted as lost after a new definition
	failovers       int
	moves, terms    int
	resets          int
	cancelled       int           // runs that plans named as cancelled
	dropped         int           // pending attempts at cancelled runs
	firesRetried    int           // triggers that retry a fire
	backfilled      int           // triggers for fires of backfills
	overridden      int           // epochs whose definition has fields of an override
	forgotten       int           // jobs
	defined         int           // creations
	redefined       int           // changes of definitions
	wakes, rests    int           // of defined jobs
	undefined       int           // deletions of all records of defined jobs
	judged          int           // undisturbed fires and failovers
	poolRuns        int           // with a pool
	poolSizes       int           // that pools got
	poolWaits       int           // undisturbed
	poolIdle        time.Duration // the longest time in one of them with a free slot
	faults, actions map[string]int
}

func newTotals() *totals {
	return &totals{began: time.Now(), faults: map[string]int{}, actions: map[string]int{}}
}

func (t *totals) add(r *judge.Report) {
	t.seeds++
	if r.Failovers == 0 || r.Moves == 0 {
		return
	}
	t.counted++
	t.claims += r.Claims
	t.reruns += r.Reruns
	t.handedBack += r.HandedBack
	t.retries += r.Retries
	t.delays += r.Delays
	t.ended += r.EndedFires
	t.released += r.Releases
	t.overlapping += r.SkippedOverlap
	t.expired += r.SkippedExpired
	t.givenUp += r.GivenUp
	t.failovers += r.Failovers
	t.moves += r.Moves
	t.terms += r.Terms
	t.resets += r.Resets
	t.cancelled += r.RunsCancelled
	t.dropped += r.Cancelled
	t.firesRetried += r.FiresRetried
	t.backfilled += r.Backfilled
	t.overridden += r.Overridden
	t.forgotten += r.Forgotten
	t.defined += r.Defined
	t.redefined += r.Redefined
	t.wakes += r.Wakes
	t.rests += r.Rests
	t.undefined += r.Undefined
	t.judged += r.Judged
	t.poolRuns += r.PoolRuns
	t.poolSizes += r.PoolSizes
	t.poolWaits += r.PoolWaits
	t.poolIdle = max(t.poolIdle, r.PoolIdle)
	for kind, n := range r.Faults {
		t.faults[kind] += n
	}
	for kind, n := range r.Actions {
		t.actions[kind] += n
	}
}

func sum(kinds map[string]int) int {
	n := 0
	for _, k := range kinds {
		n += k
	}
	return n
}

// progress returns a line.
func (t *totals) progress() string {
	took := time.Since(t.began)
	return fmt.Sprintf("%d seeds, %d claims, %d faults in %v, %.0f claims/s",
		t.seeds, t.claims, sum(t.faults), took.Round(time.Second), float64(t.claims)/took.Seconds())
}

// String returns a table.
func (t *totals) String() string {
	var b strings.Builder
	row := func(n int, what string) { fmt.Fprintf(&b, "\n%12d  %s", n, what) }
	fmt.Fprintf(&b, "%s\n%12d  seeds count, %d more had no failover or no move", t.progress(), t.counted, t.seeds-t.counted)
	row(t.claims, "claims")
	row(t.reruns, "re-runs")
	row(t.handedBack, "runs handed back at a drain")
	row(t.retries, "failed runs retried")
	row(t.delays, "claims of fires a fixed delay after a run")
	row(t.ended, "fires of followed jobs that have ended")
	row(t.released, "fires of jobs that follow others")
	row(t.overlapping, "fires skipped that came due during a run")
	row(t.expired, "fires skipped that were owed for longer than the catch-up window")
	row(t.givenUp, "re-runs counted as lost, since the newest definition wants none")
	row(t.failovers, "shards failed over")
	row(t.moves, "shards moved")
	row(t.terms, "terms")
	row(t.resets, "resets")
	row(t.cancelled, "runs cancelled")
	row(t.dropped, "pending attempts at cancelled runs")
	row(t.firesRetried, "fires retried by operators")
	row(t.backfilled, "fires of backfills")
	row(t.overridden, "epochs of overridden definitions")
	row(t.forgotten, "jobs forgotten")
	row(t.defined, "jobs defined as data")
	row(t.redefined, "changes of their definitions")
	row(t.wakes, "wakes")
	row(t.rests, "rests")
	row(t.undefined, "deletions")
	row(t.poolRuns, "runs with pools")
	row(t.poolSizes, "sizes of pools")
	row(t.poolWaits, fmt.Sprintf("undisturbed waits for slots, for at most %v with a free one", t.poolIdle.Round(time.Millisecond)))
	row(t.judged, "undisturbed fires and failovers, each in time")
	row(sum(t.faults), "faults")
	kinds := func(of map[string]int) {
		for _, kind := range slices.Sorted(maps.Keys(of)) {
			row(of[kind], "  "+kind)
		}
	}
	kinds(t.faults)
	row(sum(t.actions), "actions of operators")
	kinds(t.actions)
	return b.String()
}

func TestTotals_LeaveOutSeedsWithoutAFailoverOrAMove(t *testing.T) {
	report := func(failovers, moves int) *judge.Report {
		return &judge.Report{Claims: 10, Failovers: failovers, Moves: moves, Faults: map[string]int{"crash": 2}}
	}
	sum := newTotals()
	for _, r := range []*judge.Report{report(1, 0), report(0, 1), report(1, 1), report(3, 2)} {
		sum.add(r)
	}
	assert.Equal(t, 4, sum.seeds)
	assert.Equal(t, 2, sum.counted)
	assert.Equal(t, 20, sum.claims)
	assert.Equal(t, map[string]int{"crash": 4}, sum.faults)
}
