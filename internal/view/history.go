package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/count"
)

// Fires are fires of a job that have ended, as the history has them.
type Fires struct {
	Version int            `json:"version"`
	At      time.Time      `json:"at"`
	Job     string         `json:"job"`
	Fires   []history.Fire `json:"fires"` // the latest first
	Note    string         `json:"note,omitempty"`
}

// FiresOf returns fires of a job.
func FiresOf(job string, fires []history.Fire, now time.Time) Fires {
	return Fires{Version: Version, At: now, Job: job, Fires: fires}
}

// Screen returns the table of the fires.
func (v Fires) Screen(t Times) Screen {
	if len(v.Fires) == 0 {
		return Screen{{Lines: []string{"no fires"}}, noteSection(v.Note)}
	}
	table := Table{Columns: columns("FIRE", "WHEN", "LATE", "TOOK", "OK", "FAILED", "SKIPPED", "~NOTE", "+SLOWEST", "+ITEMS", "+END")}
	for i := range v.Fires {
		f := &v.Fires[i]
		fire, late, took := t.fire(f.Fire), Span(f.MaxLate), "-"
		if f.Trigger != 0 {
			fire, late = fmt.Sprintf("%s #%d", fire, f.Trigger), "-"
		}
		if f.FirstStart.IsZero() {
			late = "-"
		}
		if !f.FirstStart.IsZero() && !f.LastEnd.IsZero() {
			took = Span(f.LastEnd.Sub(f.FirstStart))
		}
		table.Rows = append(table.Rows, []string{
			fire, t.At(f.Fire), late, took, describeOK(f), fmt.Sprint(f.Failed), fmt.Sprint(f.Skipped), noteOf(f, t), Span(f.MaxDuration), describeItems(f.ItemsFetched, f.ItemsProcessed), endOf(f),
		})
	}
	return Screen{{Table: table}}
}

// describeOK returns how many of the shards have succeeded, "-" if no run of the fire has ended.
func describeOK(f *history.Fire) string {
	if f.Shards == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", f.OK, f.Shards)
}

// noteOf returns the first of several skipped fires, why they were skipped, and the numbers of runs that had no result or were repeated.
func noteOf(f *history.Fire, t Times) string {
	var notes []string
	switch why := describeReasons(f); {
	case !f.SkippedFrom.IsZero():
		from := t.exactly(f.SkippedFrom)
		if date, clock, _ := strings.Cut(from, "T"); strings.HasPrefix(t.exactly(f.Fire), date) {
			from = clock
		}
		notes = append(notes, cmp.Or(why, "skipped")+" since "+from)
	case why != "":
		notes = append(notes, "skipped: "+why)
	}
	for _, n := range []struct {
		count int64
		text  string
	}{{f.Crashed, "crashed"}, {f.Unfinished, "unfinished"}, {f.Repeated, "repeated"}} {
		if n.count > 0 {
			notes = append(notes, fmt.Sprintf("%d %s", n.count, n.text))
		}
	}
	return orDash(strings.Join(notes, ", "))
}

// endOf returns how a fire has ended in the whole fleet, "-" if that is not known.
func endOf(f *history.Fire) string {
	switch {
	case f.Ended.IsZero():
		return "-"
	case f.FailedShards > 0:
		return fmt.Sprintf("%d failed", f.FailedShards)
	case f.SkippedShards > 0:
		return fmt.Sprintf("%d skipped", f.SkippedShards)
	}
	return "succeeded"
}

// Names returns the instants of the fires.
func (v Fires) Names() []string {
	return namesOf(v.Fires, func(f *history.Fire) string { return f.Fire.Format(time.RFC3339Nano) })
}

// Items returns the fires.
func (v Fires) Items() []any { return itemsOf(v.Fires) }

// HistoryRuns are runs of a job that have ended, as the history has them.
type HistoryRuns struct {
	Version int           `json:"version"`
	At      time.Time     `json:"at"`
	Job     string        `json:"job"`
	Runs    []history.Run `json:"runs"`
	// Skipped has, for the runs of a fire, the records of runs that were skipped: of the fire, or of it and others at once.
	Skipped []history.Fire `json:"skipped,omitempty"`
	Note    string         `json:"note,omitempty"`
	Tail    bool           `json:"-"` // show the output that the history keeps of each run
}

// HistoryRunsOf returns runs of a job. Those of fires that were skipped are shown.
func HistoryRunsOf(job string, runs []history.Run, fires []history.Fire, now time.Time) HistoryRuns {
	fires = slices.DeleteFunc(slices.Clone(fires), func(f history.Fire) bool { return f.Skipped == 0 })
	return HistoryRuns{Version: Version, At: now, Job: job, Runs: runs, Skipped: fires}
}

// Screen returns the table of the runs, and the skipped ones.
func (v HistoryRuns) Screen(t Times) Screen {
	var skipped Section
	for i := range v.Skipped {
		skipped.Lines = append(skipped.Lines, describeSkipped(&v.Skipped[i], t))
	}
	if len(v.Runs) == 0 {
		return Screen{{Lines: []string{"no runs"}}, skipped, noteSection(v.Note)}
	}
	table := Table{Columns: columns("SHARD", "FIRE", "TRY", "~INSTANCE", "ENDED", "TOOK", "OUTCOME", "~ERROR", "+REASON", "+FENCE", "+ITEMS", "+TRACE")}
	for _, r := range v.Runs {
		fire, took := t.fire(r.Fire), "-"
		if r.Trigger != 0 {
			fire = fmt.Sprintf("%s #%d", fire, r.Trigger)
		}
		if !r.Started.IsZero() {
			took = Span(r.Duration())
		}
		text := r.Error
		if r.ExitCode != nil && *r.ExitCode >= 0 && !strings.Contains(text, "exit") {
			text = fmt.Sprintf("exit code %d: %s", *r.ExitCode, text)
		}
		table.Rows = append(table.Rows, []string{
			fmt.Sprint(r.Shard), fire, fmt.Sprint(r.Attempt), r.Instance, t.At(r.Ended), took, string(r.Outcome), orDash(text),
			r.Reason, fmt.Sprint(r.Fence), describeItems(r.ItemsFetched, r.ItemsProcessed), orDash(r.TraceID),
		})
	}
	screen := Screen{{Table: table}, skipped}
	for i := range v.Runs {
		if v.Tail {
			screen = append(screen, tailOf(&v.Runs[i], t))
		}
	}
	return screen
}

// tailOf returns the output of a run.
func tailOf(r *history.Run, t Times) Section {
	s := Section{Title: fmt.Sprintf("shard %d, %s, attempt %d", r.Shard, t.fire(r.Fire), r.Attempt), Lines: []string{"  no output kept"}}
	if r.Trigger != 0 {
		s.Title += fmt.Sprintf(", trigger %d", r.Trigger)
	}
	if r.Output != "" {
		s.Lines = strings.Split("  "+strings.ReplaceAll(strings.TrimRight(r.Output, "\n"), "\n", "\n  "), "\n")
	}
	return s
}

// describeSkipped describes the skipped runs of a record.
func describeSkipped(f *history.Fire, t Times) string {
	text := count.Of(int(f.Skipped), "run") + " skipped"
	if !f.SkippedFrom.IsZero() {
		text += fmt.Sprintf(" of the fires from %s to %s", t.exactly(f.SkippedFrom), t.exactly(f.Fire))
	}
	if why := describeReasons(f); why != "" {
		text += ": " + why
	}
	return text
}

// describeReasons returns why runs were skipped, "" if that is not on record: "overlap", or "4 overlap, 2 disabled".
func describeReasons(f *history.Fire) string {
	var parts []string
	for reason, n := range f.SkippedBy.All() {
		if n == f.Skipped {
			return reason.String()
		}
		parts = append(parts, fmt.Sprintf("%d %v", n, reason))
	}
	return strings.Join(parts, ", ")
}

// describeItems returns how many of the fetched items were processed, "-" if there were none.
func describeItems(fetched, processed int64) string {
	if fetched == 0 && processed == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", processed, fetched)
}

// Names returns the IDs of the runs.
func (v HistoryRuns) Names() []string {
	return namesOf(v.Runs, func(r *history.Run) string { return r.ID })
}

// Items returns the runs.
func (v HistoryRuns) Items() []any { return itemsOf(v.Runs) }
