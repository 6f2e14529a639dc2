package view

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Jobs is the list of jobs.
type Jobs struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Group
	Jobs       []Job          `json:"jobs"`
	Alerts     []Alert        `json:"alerts"` // of the group and its instances
	Unreadable []registry.Key `json:"unreadable"`
	Note       string         `json:"note,omitempty"`
}

// Job is a job in a list.
type Job struct {
	operator.JobSummary
	State  string   `json:"state"`  // the gravest of States
	States []string `json:"states"` // the gravest first
	Text   string   `json:"text"`   // State in words
}

// JobsFilter selects jobs. Its zero value selects all.
type JobsFilter struct {
	Glob  string // a pattern of path.Match; empty for all
	State string // one of States
}

// Check returns an error for a pattern or a state that cannot match.
func (f JobsFilter) Check() error {
	if _, err := path.Match(f.Glob, ""); err != nil {
		return fmt.Errorf("pattern %q: %w", f.Glob, err)
	}
	if f.State != "" && !slices.Contains(JobStates, f.State) {
		return fmt.Errorf("state is %q, not one of %s", f.State, strings.Join(JobStates, ", "))
	}
	return nil
}

// JobsOf returns the list of jobs of a group that f selects.
func JobsOf(st operator.GroupStatus, f JobsFilter) Jobs {
	v, _ := JobsPage(st, f, 0, len(st.Jobs))
	return v
}

// JobsPage returns a part of the list of jobs: those from an index to another one, if there are so many; and the length of the
// list. Its cost depends on the part: the states of the other jobs are not described.
func JobsPage(st operator.GroupStatus, f JobsFilter, from, to int) (v Jobs, total int) {
	v = Jobs{Version: Version, At: st.At, Group: groupOf(&st), Alerts: alertsOf(&st, len(st.Jobs)), Unreadable: st.Unreadable}
	for i := range st.Jobs {
		if !f.Selects(&st.Jobs[i], st.At) {
			continue
		}
		if total >= from && total < to {
			if v.Jobs == nil { // a job has a kilobyte, so that copies of a growing list are its main cost
				v.Jobs = make([]Job, 0, min(to-from, len(st.Jobs)-i))
			}
			v.Jobs = append(v.Jobs, JobOf(&st.Jobs[i], st.At, LateAfter))
		}
		total++
	}
	if text := describeUnoffered(st.Jobs); text != "" {
		v.Alerts = append(v.Alerts, Alert{Text: strings.ToUpper(text[:1]) + text[1:] + "."})
	}
	return v, total
}

// Selects reports whether f, which Check accepts, selects a job.
func (f JobsFilter) Selects(j *operator.JobSummary, now time.Time) bool {
	if matched, _ := path.Match(f.Glob, j.Job); f.Glob != "" && !matched {
		return false
	}
	if f.State == OK {
		return JobStates[gravityOf(j, now)] == OK
	}
	return f.State == "" || inState(j, f.State, now, LateAfter)
}

// JobOf returns a job as lists show it. Its oldest due fire is late once it has been due for longer than lateAfter.
func JobOf(j *operator.JobSummary, now time.Time, lateAfter time.Duration) Job {
	states := statesOf(j, now, lateAfter)
	return Job{*j, states[0], states, describeState(j, states)}
}

// describeState returns the state of a job in words, with the most useful reason.
func describeState(j *operator.JobSummary, states []string) string {
	switch states[0] {
	case Late:
		switch {
		case j.Unowned > 0:
			return "LATE: no owner"
		case j.Expired > 0:
			return "LATE: " + describeExpired(j)
		case j.AwaitedPool != "":
			return "LATE: waits for pool " + j.AwaitedPool
		case j.Running > 0:
			return "LATE: still runs"
		}
		return "LATE"
	case Unowned:
		return "no owner"
	case Expired:
		return describeExpired(j)
	case Problem:
		return j.Problem
	case Failing:
		return "failing: " + fewShards(j.Failing)
	case Stopped:
		return "by trigger only"
	case New:
		return "not planned"
	}
	return states[0] + describeRest(j, states)
}

// describeRest returns what follows the state of a job without a fault, such as ", 2 disabled".
func describeRest(j *operator.JobSummary, states []string) (text string) {
	if has(states, New) {
		text = ", not planned"
	}
	if j.Disabled > 0 {
		text += fmt.Sprintf(", %d disabled", j.Disabled)
	}
	differing := slices.Concat(j.LocalDiffers, j.Differs)
	slices.Sort(differing)
	differing = slices.Compact(differing)
	switch n := len(differing); {
	case n == 1:
		text += ", differs on " + differing[0]
	case n > 1:
		text += fmt.Sprintf(", differs on %d instances", n)
	}
	return text
}

// describeExpired names the owner whose session has expired, or counts the owners.
func describeExpired(j *operator.JobSummary) string {
	if len(j.ExpiredOwners) == 1 {
		return j.ExpiredOwners[0] + " expired"
	}
	return count.Of(len(j.ExpiredOwners), "owner") + " expired"
}

// Screen returns the table of the jobs.
func (v Jobs) Screen(t Times) Screen {
	return Screen{v.table(t).orLine("no jobs"), noteSection(v.Note), alertSection(v.Alerts), unreadableSection(v.Unreadable)}
}

func (v Jobs) table(t Times) Table {
	table := Table{Columns: columns("~JOB", "~SCHEDULE", "NEXT", "LAST", "SHARDS", "OK/FAIL/SKIP", "+REVISION", "+LAST END", "+TRIGGERS", "+LOST", "+UNKNOWN", "+PAUSED", "~STATE")}
	for i := range v.Jobs {
		j := &v.Jobs[i]
		table.Rows = append(table.Rows, []string{
			j.Job, ShortSchedule(j.Schedule), j.next(t), t.At(j.LastFire), j.describeShards(),
			fmt.Sprintf("%d/%d/%d", j.Counts.Succeeded, j.Counts.Failed, j.Counts.Skipped),
			fmt.Sprint(j.Revision), t.At(j.Ended), fmt.Sprint(j.Triggers), fmt.Sprint(j.Counts.Lost), fmt.Sprint(j.Counts.Unknown), j.describeHold(t), j.Describe(),
		})
	}
	return table
}

// Describe returns the state in words, with who paused the job.
func (j *Job) Describe() string {
	of := ""
	switch {
	case j.RetiredBy.By != "":
		of = " by " + j.RetiredBy.By
	case !has(j.States, Paused):
	case j.State == Problem: // whose text may be cut
		return Paused + ", " + j.Text
	case j.State != Paused: // a graver state does not hide the pause
		return j.Text + ", paused"
	case j.GroupPaused:
		of = " with the group"
	case j.HeldBy.By != "":
		of = " by " + j.HeldBy.By
	}
	if rest, ok := strings.CutPrefix(j.Text, j.State); ok {
		return j.State + of + rest
	}
	return j.Text
}

// describeHold returns who paused the job itself or stopped its schedule, when, why and until when.
func (j *Job) describeHold(t Times) string {
	if j.HeldBy.At.IsZero() {
		return "-"
	}
	return strings.TrimSpace(untilText(j.Until, t) + " " + describeAct(j.HeldBy, t))
}

// untilText returns when a pause ends by itself, "" if it does not.
func untilText(at time.Time, t Times) string {
	switch {
	case at.IsZero():
		return ""
	case t.Mode == "relative":
		return " for " + Span(at.Sub(t.Now))
	}
	return " until " + t.At(at)
}

// usualDelay is how long a fire may be due before it shows: a claim takes a moment.
const usualDelay = 5 * time.Second

// next returns the next fire, or how long one is due.
func (j *Job) next(t Times) string {
	switch due := overdueFor(j, t.Now); {
	case has(j.States, Late):
		return "late " + Span(due)
	case due >= usualDelay:
		return "due " + Span(due)
	}
	if !j.NextFire.IsZero() && !j.NextFire.After(t.Now) { // it has come due since the group was read
		return "now"
	}
	return t.At(j.NextFire)
}

// describeShards returns "3", "64, 2 run" or "5 of 8": how many have an owner, and how many run.
func (j *Job) describeShards() string {
	text := fmt.Sprint(j.Shards)
	if j.Unowned > 0 {
		text = fmt.Sprintf("%d of %d", j.Shards-j.Unowned, j.Shards)
	}
	if j.Running > 0 {
		text += fmt.Sprintf(", %d run", j.Running)
	}
	return text
}

// Names returns the names of the jobs.
func (v Jobs) Names() []string {
	return namesOf(v.Jobs, func(j *Job) string { return j.Job })
}

// Items returns the jobs, for a form with a line for each.
func (v Jobs) Items() []any { return itemsOf(v.Jobs) }

func itemsOf[T any](list []T) (items []any) {
	for i := range list {
		items = append(items, list[i])
	}
	return items
}

func namesOf[T any](list []T, name func(*T) string) (names []string) {
	for i := range list {
		names = append(names, name(&list[i]))
	}
	return names
}

// unreadableSection lists records that could not be decoded.
func unreadableSection(keys []registry.Key) Section {
	if len(keys) == 0 {
		return Section{}
	}
	s := Section{Title: "UNREADABLE RECORDS"}
	for _, key := range keys {
		s.Lines = append(s.Lines, string(key))
	}
	return s
}
