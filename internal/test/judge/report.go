package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report holds the violations and numbers that a Judge has collected.
type Report struct {
	Seed    uint64
	Faults  map[string]int // by kind
	Actions map[string]int // of operators, by kind

	Commits, Conflicts          int // at the server
	Claims, Reruns, Completed   int // of shards
	InFlight, Lost, Unknown     int // runs in progress whose session ended, and those of them counted as lost or unknown
	HandedBack                  int // runs that their owners handed back
	Retries                     int // failed runs that their owners put on record to be made again
	Cancelled                   int // pending attempts at cancelled runs, dropped by the owners of their shards
	GivenUp                     int // those of Lost that were pending when a new definition stopped re-runs
	Skipped, Missed             int // fires that the misfire policies skipped, or claimed late
	SkippedDisabled             int // fires skipped because their shard was disabled; part of Skipped
	SkippedOverlap              int // fires skipped because they came due during a run; part of Skipped
	SkippedUpstream             int // fires skipped because a followed fire did not end as wanted; part of Skipped
	SkippedExpired              int // fires skipped that were owed for longer than the catch-up window; part of Skipped
	Delays                      int // claims of fires that count from the end of a run
	EndedFires, Releases        int // fires that plans showed as ended, and fires released for jobs that follow
	Functions                   int // calls of handlers
	Overlaps, ForcedOverlaps    int // calls that outlasted their context, or the forced expiry of their session
	Assigned, Moves, Failovers  int // shards assigned: without an earlier owner, from a live one, from an expired one
	KeptByName                  int // those of Failovers that returned to the same instance within its restart grace
	Plans, Terms, Epochs        int
	Resets                      int // of plans
	Judged                      int // fires and failovers that no fault disturbed
	Triggers, Due               int
	RunsCancelled               int           // runs that plans named as cancelled
	FiresRetried, Backfilled    int           // triggers that retry a fire, and those for fires of backfills
	Overridden                  int           // epochs whose definition has fields of an override
	Forgotten                   int           // jobs
	Defined, Redefined          int           // creations of defined jobs, and changes of them
	Wakes, Rests, Undefined     int           // of defined jobs; Undefined are deletions of all records
	PoolRuns, PoolSizes         int           // calls of jobs with pools, and changes of sizes
	PoolMost, PoolMostAll       int           // the most of them at once: of those that count, and of all
	PoolWaits                   int           // undisturbed waits for slots
	PoolIdle                    time.Duration // the longest time in one of them with a free slot
	Processes, Crashes, Returns int
	Late                        []time.Duration // delays of claims that count as on time; unsorted
	Rerun                       []time.Duration // from the end of a session to the claim of its run
	Violations                  []Violation
	Broken                      map[int]int // violations by promise, with those that are not in Violations

	trails int
	most   int // lines of a trail
	notes  []note
}

// AddNote records a fault or an operator's action, for the trails of violations.
func (r *Report) AddNote(at time.Time, text string) {
	const most = 256
	if len(r.notes) >= most {
		r.notes = append(r.notes[:0], r.notes[most/2:]...)
	}
	r.notes = append(r.notes, note{at, text})
}

// Violation is a broken promise.
type Violation struct {
	At      time.Time
	Promise int // its number in the package comment
	Text    string
	Trail   string // the commits before it, for the first violations
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s: promise %d: %s", clock(v.At), v.Promise, v.Text)
	if v.Trail != "" {
		s += "\n" + v.Trail
	}
	return s
}

const (
	maxViolations = 20
	maxTrails     = 2
)

func (r *Report) addViolation(v Violation) {
	if r.Broken == nil {
		r.Broken = map[int]int{}
	}
	r.Broken[v.Promise]++
	if len(r.Violations) < maxViolations {
		r.Violations = append(r.Violations, v)
	}
}

func (i instant) duration() time.Duration { return time.Duration(i) }

func (r *Report) addLateness(d instant)   { r.Late = append(r.Late, d.duration()) }
func (r *Report) addRerunDelay(d instant) { r.Rerun = append(r.Rerun, d.duration()) }

// Err returns nil if no promise was broken.
func (r *Report) Err() error {
	if len(r.Broken) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: broken promises:", r.Seed)
	more := -len(r.Violations)
	for _, p := range slices.Sorted(maps.Keys(r.Broken)) {
		fmt.Fprintf(&b, " %d (%d times)", p, r.Broken[p])
		more += r.Broken[p]
	}
	for _, v := range r.Violations {
		b.WriteString("\n" + v.String())
	}
	if more > 0 {
		fmt.Fprintf(&b, "\nand %d more", more)
	}
	return fmt.Errorf("%s", b.String())
}

// String returns the numbers as lines.
func (r *Report) String() string {
	return fmt.Sprintf(`seed %d
  fires of shards: %d due, %d claims, %d re-runs of %d in flight and %d handed back, %d retries, %d lost, %d unknown, %d skipped (%d disabled, %d overlapping, %d expired), %d late; %d calls, of which %d outlasted their context and %d a forced expiry
  shards: %d assigned, %d moved, %d failed over, of which %d returned to their instance; %d terms, %d new epochs, %d resets, %d triggers
  commits: %d, of which %d plans; %d conflicts
  processes: %d; faults: %s; operators: %s
  %d undisturbed fires and failovers; delay of claims %s; of re-runs %s
  pools: %s`,
		r.Seed, r.Due, r.Claims, r.Reruns, r.InFlight, r.HandedBack, r.Retries, r.Lost, r.Unknown, r.Skipped, r.SkippedDisabled, r.SkippedOverlap, r.SkippedExpired, r.Missed, r.Functions, r.Overlaps, r.ForcedOverlaps,
		r.Assigned, r.Moves, r.Failovers, r.KeptByName, r.Terms, r.Epochs, r.Resets, r.Triggers,
		r.Commits, r.Plans, r.Conflicts,
		r.Processes, listCounts(r.Faults), listCounts(r.Actions), r.Judged, Quantiles(r.Late), Quantiles(r.Rerun), r.PoolText())
}

func listCounts(kinds map[string]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Quantiles returns p50, p99 and maximum as text. It sorts d.
func Quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "-"
	}
	slices.SortFunc(d, cmp.Compare)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("%v/%v/%v (p50, p99, max)", at(0.5), at(0.99), at(1))
}
