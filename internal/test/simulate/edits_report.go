package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// EditsReport is the outcome of one simulation of record edits, or the sum of many.
type EditsReport struct {
	Seed     uint64
	Seeds    int
	Rows     map[string]*EditsRow // by kind and change
	Excused  map[string]*Excused  // doubled runs of a job whose plan or claims were edited
	CaughtUp time.Duration        // the longest time that a fleet took to run missed fires
	Restored int                  // plans that the leader had to restore
	Strict   int                  // jobs that had to run every fire of a round once
	Calls    int
	Commits  int // the most per edit, besides those of runs
	Reads    int // the most per edit
	Lines    int // the most per edit

	CalmCommits, CalmReads, CalmLines int // the most in the fires after a round

	Steps []string
}

// Excused counts the doubled runs that edits of one kind excuse.
type Excused struct {
	Runs  int
	Until time.Duration // when the last of them began, after the edit
}

func (r *EditsReport) excuse(one *edit, crash bool, after time.Duration) {
	id := one.ID()
	if crash {
		id += ", and a crash"
	}
	r.addExcused(id, Excused{1, after})
}

func (r *EditsReport) addExcused(id string, more Excused) {
	if r.Excused == nil {
		r.Excused = map[string]*Excused{}
	}
	is := r.Excused[id]
	if is == nil {
		is = &Excused{}
		r.Excused[id] = is
	}
	is.Runs, is.Until = is.Runs+more.Runs, max(is.Until, more.Until)
}

// EditsRow counts the outcomes of one change of one kind of record.
type EditsRow struct {
	Edits, Healed, Named int
	Unread               int             // no process read the edited value
	Within               []time.Duration // to heal
}

func (r *EditsReport) rowOf(one *edit) *EditsRow {
	id := one.ID()
	if r.Rows[id] == nil {
		r.Rows[id] = &EditsRow{}
	}
	return r.Rows[id]
}

func (r *EditsRow) addHealed(took time.Duration) {
	r.Healed++
	r.Within = append(r.Within, took)
}

// Add adds the report of another seed.
func (r *EditsReport) Add(o *EditsReport) {
	if r.Rows == nil {
		r.Rows = map[string]*EditsRow{}
	}
	r.Seeds++
	r.Strict, r.Restored, r.Calls, r.CaughtUp = r.Strict+o.Strict, r.Restored+o.Restored, r.Calls+o.Calls, max(r.CaughtUp, o.CaughtUp)
	for id, more := range o.Excused {
		r.addExcused(id, *more)
	}
	r.Commits, r.Reads, r.Lines = max(r.Commits, o.Commits), max(r.Reads, o.Reads), max(r.Lines, o.Lines)
	r.CalmCommits, r.CalmReads, r.CalmLines = max(r.CalmCommits, o.CalmCommits), max(r.CalmReads, o.CalmReads), max(r.CalmLines, o.CalmLines)
	for id, row := range o.Rows {
		if r.Rows[id] == nil {
			r.Rows[id] = &EditsRow{}
		}
		is := r.Rows[id]
		is.Edits, is.Healed, is.Named, is.Unread = is.Edits+row.Edits, is.Healed+row.Healed, is.Named+row.Named, is.Unread+row.Unread
		is.Within = append(is.Within, row.Within...)
	}
}

// String returns a table.
func (r *EditsReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %d runs; caught up within %v; %d times a job had to run every fire of a round once, %d plans had to be restored; "+
		"at most per edit: %d commits, %d reads, %d lines; in the fires after a round: %d, %d, %d",
		r.Seeds, r.Calls, r.CaughtUp, r.Strict, r.Restored, r.Commits, r.Reads, r.Lines, r.CalmCommits, r.CalmReads, r.CalmLines)
	for _, id := range slices.Sorted(maps.Keys(r.Rows)) {
		row := r.Rows[id]
		slices.Sort(row.Within)
		fmt.Fprintf(&b, "\n%5d  %-28s healed %4d", row.Edits, id, row.Healed)
		if n := len(row.Within); n > 0 {
			fmt.Fprintf(&b, " in %v, at most %v", row.Within[n/2].Round(time.Second), row.Within[n-1].Round(time.Second))
		}
		fmt.Fprintf(&b, ", named %d, unread %d", row.Named, row.Unread)
	}
	for _, id := range slices.Sorted(maps.Keys(r.Excused)) {
		fmt.Fprintf(&b, "\n%5d  doubled runs excused by %s, at most %v after", r.Excused[id].Runs, id, r.Excused[id].Until.Round(time.Millisecond))
	}
	return b.String()
}
