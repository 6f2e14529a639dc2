// Package view turns snapshots of a fleet into what a screen or page shows: data with stable JSON names, and
// tables of texts. It prints nothing, so other front ends can show the same.
package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/operator"
)

// Version is the version of the JSON form of all views. It is raised when a field changes its meaning
// or is removed.
const Version = 1

// Screen is a view as text: sections that follow each other.
type Screen []Section

// Section is a part of a screen. Empty parts are left out.
type Section struct {
	Title  string
	Fields []Field
	Table  Table
	Lines  []string
}

// Field is a labelled line.
type Field struct{ Label, Text string }

// Table is a table of texts.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// Column is a column of a table.
type Column struct {
	Name string
	Wide bool // shown in wide tables only
	Flex bool // may be shortened so that the table fits
}

// Columns returns columns by name. A name with + before it is shown in wide tables only, one with ~
// may be shortened.
func columns(names ...string) (out []Column) {
	for _, n := range names {
		c := Column{Name: strings.TrimLeft(n, "+~")}
		c.Wide, c.Flex = strings.HasPrefix(n, "+"), strings.HasPrefix(n, "~")
		out = append(out, c)
	}
	return out
}

// orLine returns a section of the table, or of a line if it has no rows.
func (t Table) orLine(none string) Section {
	if len(t.Rows) == 0 {
		return Section{Lines: []string{none}}
	}
	return Section{Table: t}
}

// Times formats instants.
type Times struct {
	Now  time.Time
	Mode string // relative, utc or local
	Zone *time.Location
}

// At returns an instant as a short text: "in 4h" or "19h ago"; or, if times are absolute, the time of
// this day or a date with hours and minutes. A zero instant is "-".
func (t Times) At(at time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case t.Mode == "utc":
		return short(at.UTC(), t.Now.UTC(), "Z")
	case t.Mode == "local":
		return short(at.In(t.Zone), t.Now.In(t.Zone), "")
	case at.After(t.Now):
		return "in " + Span(at.Sub(t.Now))
	}
	return Span(t.Now.Sub(at)) + " ago"
}

func short(at, now time.Time, suffix string) string {
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format(time.TimeOnly) + suffix
	}
	return at.Format("2006-01-02 15:04") + suffix
}

// fire returns the instant of a fire with all its digits, as --fire takes it.
func (t Times) fire(at time.Time) string { return t.zoned(at).Format(time.RFC3339Nano) }

// exactly returns an instant with date and seconds.
func (t Times) exactly(at time.Time) string { return t.zoned(at).Format(time.RFC3339) }

// zoned returns an instant in the zone in which it is shown.
func (t Times) zoned(at time.Time) time.Time {
	if t.Mode == "local" {
		return at.In(t.Zone)
	}
	return at.UTC()
}

// Exact returns an instant with date and seconds and, unless times are absolute, its distance.
func (t Times) Exact(at time.Time) string {
	if t.Mode == "relative" {
		return fmt.Sprintf("%s (%s)", t.exactly(at), t.At(at))
	}
	return t.exactly(at)
}

// Span returns a duration with its two highest units at most.
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	two := func(n int64, unit string, m int64, lower string) string {
		if m == 0 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		return fmt.Sprintf("%d%s%d%s", n, unit, m, lower)
	}
	s := int64(d / time.Second)
	switch {
	case d == 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", max(1, d.Milliseconds()))
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 10*60:
		return two(s/60, "m", s%60, "s")
	case s < 3600:
		return fmt.Sprintf("%dm", s/60)
	case s < 10*3600:
		return two(s/3600, "h", s/60%60, "m")
	case s < 48*3600:
		return fmt.Sprintf("%dh", s/3600)
	}
	return fmt.Sprintf("%dd", s/86400)
}

// Ranges returns sorted numbers as ranges: "0-6,8".
func Ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts, i = append(parts, part), j+1
	}
	return strings.Join(parts, ",")
}

// few returns ranges, cut after about 24 bytes.
func few(numbers []int) string {
	text := Ranges(numbers)
	if len(text) <= 24 {
		return text
	}
	return text[:strings.LastIndexByte(text[:24], ',')+1] + "..."
}

// ShortSchedule returns the text of a schedule without its common words.
func ShortSchedule(text string) string {
	if text == "" {
		return "-"
	}
	text = strings.TrimPrefix(text, "cron ")
	before, zone, found := strings.Cut(text, " in ")
	if found {
		return before + " " + zone
	}
	return text
}

// Group names the group that a view is of.
type Group struct {
	Namespace string `json:"namespace"`
	Name      string `json:"group"`
	Leader    string `json:"leader,omitempty"`
	Term      uint64 `json:"term,omitempty"`
}

func groupOf(st *operator.GroupStatus) Group {
	return Group{st.Namespace, st.Group, st.Leader.Instance, st.Leader.Term}
}

// describeRuns names the shards, the fire or the trigger, and the attempt of runs.
func describeRuns(r operator.Runs, t Times) string {
	of := fmt.Sprintf("trigger #%d", r.Trigger)
	if r.Trigger == 0 {
		of = "fire " + t.fire(r.Fire)
	}
	return fmt.Sprintf("%s of %s, attempt %d", ShardsText(r.Shards), of, r.Attempt)
}

// fewShards returns "shard 7" or "shards 0-7", cut as few is.
func fewShards(shards []int) string { return shardWord(shards) + few(shards) }

// ShardsText returns "shard 7" or "shards 0-7".
func ShardsText(shards []int) string { return shardWord(shards) + Ranges(shards) }

func shardWord(shards []int) string {
	if len(shards) == 1 {
		return "shard "
	}
	return "shards "
}

// describeLost returns how many runs are lost and, if there are such runs, how many may be.
func describeLost(c operator.Counts) string {
	text := fmt.Sprintf("%d lost", c.Lost)
	if c.Unknown > 0 {
		text += fmt.Sprintf(", %d unknown", c.Unknown)
	}
	return text
}

// States that a job may be in, the gravest first.
const (
	Late    = "late"    // a fire has been due for longer than the bound
	Unowned = "unowned" // shards have no owner
	Problem = "problem" // the leader reports a problem
	Failing = "failing" // the last ended run of shards failed
	Paused  = "paused"
	// Retiring: operators have retired the job. It is in no other state, since it is not to run.
	Retiring = "retiring"
	Expired  = "expired" // the sessions of shards' owners have expired
	Stopped  = "stopped" // runs by trigger only
	New      = "new"     // no leader has planned the job
	OK       = "ok"
)

// JobStates are all states, the gravest first.
var JobStates = []string{Late, Unowned, Problem, Failing, Paused, Retiring, Expired, Stopped, New, OK}

// LateAfter is the bound of Late on screens.
const LateAfter = time.Minute

// inState reports whether a job is in one of JobStates but OK.
func inState(j *operator.JobSummary, state string, now time.Time, lateAfter time.Duration) bool {
	if !j.RetiredBy.At.IsZero() {
		return state == Retiring
	}
	switch state {
	case Late:
		return !j.Overdue.IsZero() && now.Sub(j.Overdue) > lateAfter
	case Unowned:
		return j.Unowned > 0
	case Expired:
		return j.Expired > 0
	case Problem:
		return j.Problem != ""
	case Failing:
		return len(j.Failing) > 0
	case Paused:
		return j.Paused
	case Stopped:
		return j.ScheduleStopped
	case New:
		return j.Shards == 0
	}
	return false
}

// statesOf returns the states of a job, the gravest first; never none.
func statesOf(j *operator.JobSummary, now time.Time, lateAfter time.Duration) []string {
	var states []string
	for _, s := range JobStates {
		if inState(j, s, now, lateAfter) {
			states = append(states, s)
		}
	}
	if len(states) == 0 {
		return []string{OK}
	}
	return states
}

// gravityOf returns the index in JobStates of the gravest state of a job.
func gravityOf(j *operator.JobSummary, now time.Time) int {
	for i, s := range JobStates {
		if inState(j, s, now, LateAfter) {
			return i
		}
	}
	return len(JobStates) - 1
}

func has(states []string, state string) bool { return slices.Contains(states, state) }
