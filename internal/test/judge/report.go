package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a Judge has found.
type Report struct {
	Seed    uint64
	Faults  map[string]int // by kind
	Actions map[string]int // of operators, by kind

	Commits, Conflicts          int // at the server
	Claims, Reruns, Completed   int // of shards
	InFlight, Lost, Unknown     int // runs on record whose session ended, and those of them that were counted as lost, or as unknown
	HandedBack                  int // runs that their owners handed back, to be made again
	GivenUp                     int // those of Lost that were pending when the job ceased to want re-runs
	Skipped, Missed             int // fires given up, and claimed late, by the misfire policies
	SkippedDisabled             int // fires given up because their shard was disabled, which Skipped counts too
	Functions                   int // that were called
	Overlaps, ForcedOverlaps    int // functions that outlasted their context, or the forced end of their session
	Assigned, Moves, Failovers  int // shards given to somebody: at first, by a live owner, by a dead one
	KeptByName                  int // those of a dead one that waited for it and went to one of its name
	Plans, Terms, Epochs        int
	Resets                      int // that plans have had
	Judged                      int // fires and failovers that nothing held up
	Triggers, Due               int
	Processes, Crashes, Returns int
	Late                        []time.Duration // of claims in their time, how late each was; unsorted
	Rerun                       []time.Duration // from the end of a session to the claim of what it ran
	Violations                  []Violation
	Broken                      map[int]int // violations by promise, also those that are not listed

	trails int
	most   int // lines of a trail
	notes  []note
}

// Note keeps what somebody did at a time, for the trails of violations.
func (r *Report) AddNote(at time.Time, text string) {
	const most = 256
	if len(r.notes) >= most {
		r.notes = append(r.notes[:0], r.notes[most/2:]...)
	}
	r.notes = append(r.notes, note{at, text})
}

// Violation is a promise that was broken.
type Violation struct {
	At      time.Time
	Promise int // its number in the package comment
	Text    string
	Trail   string // what came before, of the first few
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
	fmt.Fprintf(&b, "seed %d breaks promises", r.Seed)
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

// String returns the numbers.
func (r *Report) String() string {
	return fmt.Sprintf(`seed %d
  fires of shards: %d due, %d claims, %d re-runs of %d in flight and %d handed back, %d lost, %d unknown, %d skipped (%d disabled), %d late; %d functions, %d and %d overlapped
  shards: %d dealt, %d moves, %d failed over, %d of them kept; %d terms, %d generations, %d resets, %d triggers
  commits: %d, of which %d plans; %d conflicts
  processes: %d; faults: %s; operators: %s
  %d fires and failovers that nothing held up; claimed late by %s; run again after %s`,
		r.Seed, r.Due, r.Claims, r.Reruns, r.InFlight, r.HandedBack, r.Lost, r.Unknown, r.Skipped, r.SkippedDisabled, r.Missed, r.Functions, r.Overlaps, r.ForcedOverlaps,
		r.Assigned, r.Moves, r.Failovers, r.KeptByName, r.Terms, r.Epochs, r.Resets, r.Triggers,
		r.Commits, r.Plans, r.Conflicts,
		r.Processes, listed(r.Faults), listed(r.Actions), r.Judged, Quantiles(r.Late), Quantiles(r.Rerun))
}

func listed(kinds map[string]int) string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Quantiles tells how a set of times is distributed. It sorts d.
func Quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "-"
	}
	slices.SortFunc(d, cmp.Compare)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("%v/%v/%v (p50, p99, max)", at(0.5), at(0.99), at(1))
}
