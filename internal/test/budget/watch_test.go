package budget_test

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

// fireCounts holds the counts of a fleet that runs one or more jobs.
type fireCounts struct {
	kind      kind
	store     store
	instances int // of the fleet
	shards    int // of all jobs
	enough    int // required fires per instance
	every     time.Duration
	most      int // budgeted commits per fire and instance

	together *runEnds
	ledger   turnCounter
	turns    map[turn]*cost // of the turnCounter
	counts
	took time.Duration

	// Turns by outcome; turns within budget by instance.
	within map[string]int // within the budget, with one claim
	spread int            // over it, since the machine kept the runs from ending together
	behind int            // due before the previous turn had ended
}

// mostRounds bounds the rounds of fires on a machine so busy that hardly any fire stays
// within budget.
const mostRounds = 5

// watchFires runs jobs on a fleet and counts the cost of fires in the steady state. A
// fire over the budget fails the test.
func watchFires(t *testing.T, k kind, s store, instances, enough int, like ...executor.Job) *fireCounts {
	w := &fireCounts{kind: k, store: s, instances: instances, enough: enough, every: s.pace(), most: 2}
	for _, j := range like {
		w.shards += j.Shards
		if j.Tracking == executor.TrackClaims {
			w.most = 1
		}
	}
	if w.shards >= 1000 {
		w.every = max(w.every, time.Second)
	}
	w.together = endTogether(w.every / 4)
	for i := range like {
		like[i].Schedule, like[i].Handler = schedule.Every(w.every), w.together.handler(like[i].Handler)
	}
	f := newFleet(t, s)
	defer f.stop()
	for i := range instances {
		f.start(fmt.Sprint("i", i), like...)
	}
	f.awaitAssigned(len(like))
	w.awaitFires(4)
	f.applyCommits(s.count(t).commits)
	w.ledger = turnCounter{fleet: f, turns: map[turn]*cost{}}
	w.turns = w.ledger.turns

	began := time.Now()
	for range mostRounds {
		w.awaitFires(enough)
		c := s.count(t)
		w.counts.add(c)
		w.ledger.addCommits(c.commits)
		if w.judgeTurns(t); w.hasEnough() {
			break
		}
	}
	w.took = time.Since(began)
	w.checkBudget(t)
	return w
}

// awaitFires waits for this many fires and the expected end of the last one's runs.
func (w *fireCounts) awaitFires(fires int) {
	next := time.Now().Truncate(w.every).Add(w.every)
	time.Sleep(time.Until(next.Add(time.Duration(fires-1)*w.every + w.every*3/5)))
}

// hasEnough reports whether each instance with shards had enough fires within the budget.
func (w *fireCounts) hasEnough() bool {
	for _, n := range w.within {
		if n < 3 {
			return false
		}
	}
	return len(w.within) == min(w.instances, w.shards)
}

// judgeTurns classifies all turns so far.
func (w *fireCounts) judgeTurns(t *testing.T) {
	w.within, w.spread, w.behind = map[string]int{}, 0, 0
	for at, n := range w.turns {
		switch {
		case n.claims == 0: // started before the count
		case n.commits <= w.most && n.claims == 1:
			w.within[at.instance]++
		case w.isLate(at):
			w.behind++
		case w.together.spread(at, n):
			w.spread++
		default:
			assert.Fail(t, "over budget", "%v: %+v, first run ended at %v", at, *n, w.together.first[at])
		}
	}
}

// isLate reports whether the previous turn of the instance had not ended when this one
// was due.
func (w *fireCounts) isLate(at turn) bool {
	before := w.turns[turn{at.instance, record.InstantOf(at.fire.Time().Add(-w.every))}]
	return before != nil && len(before.ends) > 0 && !before.ends[len(before.ends)-1].Before(at.fire.Time())
}

// checkBudget compares the counts with the budget.
func (w *fireCounts) checkBudget(t *testing.T) {
	require.True(t, w.hasEnough(), "too few fires ended together: %v of %d", w.within, len(w.turns))
	assert.Len(t, w.commits, w.txns, "a transaction changed nothing")
	for _, c := range w.commits {
		assert.Equal(t, len(c.Then), keysWith(c, "/claims/"), "%v is not a claim", c.Then)
	}
	if w.kind.watchesRead {
		assert.LessOrEqual(t, w.reads, w.events)
	} else {
		assert.Zero(t, w.reads)
	}
	expected := w.kind.beats * w.took.Seconds() * float64(w.instances)
	assert.LessOrEqual(t, float64(w.beats), expected*1.1+float64(4*w.instances), "heartbeats")
	if w.kind.virtual {
		assert.Zero(t, w.spread+w.behind)
		assert.Len(t, w.turns, w.enough*min(w.instances, w.shards))
	}
}

// largestBytes returns the size of the largest commit among shards that ended together, before the next fire was due.
// Otherwise the record holds more ranges.
func (w *fireCounts) largestBytes() int {
	most := 0
	together := func(at turn) bool {
		n := w.turns[at]
		return n == nil || n.commits <= w.most && !w.isLate(at)
	}
	for at, n := range w.turns {
		if together(at) && together(turn{at.instance, at.fire.Add(-w.every)}) {
			most = max(most, n.bytes)
		}
	}
	return most
}

// costTable formats the cost of fires.
type costTable struct{ rows strings.Builder }

func (a *costTable) add(w *fireCounts) {
	within := 0
	for _, n := range w.within {
		within += n
	}
	fmt.Fprintf(&a.rows, "%d\t%d\t%d\t%.2f\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t\n",
		w.shards, len(w.turns), w.txns, float64(w.txns)/float64(len(w.turns)), within, w.spread, w.behind,
		w.largestBytes(), w.reads, w.events, float64(w.beats)/w.took.Seconds())
}

func (a *costTable) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nshards\tfires\ttransactions\teach\tin budget\tends spread\tbehind\tbytes at most\treads\tevents\theartbeats/s\t\n", a.rows.String())
	w.Flush()
	return out.String() + "(fires per instance; heartbeats are neither reads nor writes)"
}
