package serve

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/schedule"
)

// The widths of columns, with which a table fits 100 columns.
const (
	jobWidth      = 22
	scheduleWidth = 32
	firesWidth    = 24
	workWidth     = 46
)

// maxFires bounds the fires of a job that are shown.
const maxFires = 1000

// describe returns a table of the jobs of a file, with their next fires after now, and where an instance would join.
func describe(path string, f *jobsfile.File, t target, fires int, now time.Time) (string, error) {
	rows := [][]string{{"JOB", "SHARDS", "SCHEDULE", "DIGEST", "NEXT FIRES"}}
	for _, j := range f.Jobs {
		next, err := nextFires(j.Schedule, fires, now)
		if err != nil {
			return "", fmt.Errorf("job %q: %w", j.Name, err)
		}
		rows = appendFires(rows, []string{shorten(j.Name, jobWidth), strconv.Itoa(max(j.Shards, 1)), shorten(j.Schedule.String(), scheduleWidth), j.Local}, next)
	}
	defined := [][]string{{"JOB WITH A KIND", "KIND", "SCHEDULE", "NEXT FIRES"}}
	for i := range f.Defined {
		j := &f.Defined[i]
		next, err := nextFires(j.Schedule, fires, now)
		if err != nil {
			return "", fmt.Errorf("job %q: %w", j.Name, err)
		}
		defined = appendFires(defined, []string{shorten(j.Name, jobWidth), shorten(j.Kind, jobWidth), shorten(j.Schedule.String(), scheduleWidth)}, next)
	}
	stores := "registry " + t.url
	if f.History.URL != "" {
		stores += ", history " + historyurl.Redact(f.History.URL)
	}
	holds := count.Of(len(f.Jobs), "job")
	if len(f.Kinds) > 0 {
		holds += ", " + count.Of(len(f.Kinds), "kind")
	}
	if len(f.Defined) > 0 {
		holds += fmt.Sprintf(", %s with a kind", count.Of(len(f.Defined), "job"))
	}
	title := fmt.Sprintf("%s is valid: %s, revision %d, namespace %s, group %s, %s, digest %s\n\n", path, holds,
		f.Revision, t.namespace, t.group, stores, f.Digest())
	var tables []string
	if len(f.Kinds) > 0 {
		tables = append(tables, alignColumns(kindRows(f.Kinds)))
	}
	if len(f.Jobs) > 0 {
		tables = append(tables, alignColumns(rows))
	}
	if len(f.Defined) > 0 {
		tables = append(tables, alignColumns(defined))
	}
	return title + strings.Join(tables, "\n"), nil
}

// appendFires appends a row for each fire of a job. The first has the other cells.
func appendFires(rows [][]string, cells, fires []string) [][]string {
	for i, fire := range fires {
		if i > 0 {
			cells = make([]string, len(cells))
		}
		rows = append(rows, append(slices.Clone(cells), fire))
	}
	return rows
}

// kindRows returns the rows of a table of kinds.
func kindRows(kinds []jobsfile.Kind) [][]string {
	rows := [][]string{{"KIND", "REVISION", "MAX JOBS", "DIGEST", "WORK"}}
	for i := range kinds {
		k := &kinds[i]
		most := "100000"
		if k.MaxJobs > 0 {
			most = strconv.Itoa(k.MaxJobs)
		}
		work, _, _ := strings.Cut(k.Work, "\n")
		rows = append(rows, []string{shorten(k.Name, jobWidth), strconv.Itoa(k.Revision), most, k.Digest[:8], shorten(work, workWidth)})
	}
	return rows
}

// noFires is the text of a schedule that has ended.
const noFires = "none any more"

// nextFires returns the next fires of a schedule as texts, or why there are none.
func nextFires(s schedule.Schedule, n int, now time.Time) ([]string, error) {
	if followed := s.After(); followed != nil {
		return []string{shorten("after "+strings.Join(followed, ", "), firesWidth)}, nil
	}
	switch kind, _, _ := strings.Cut(s.String(), " "); kind {
	case "on":
		return []string{"when it is triggered"}, nil
	case "always":
		return []string{"at once, and again"}, nil
	case "fixed":
		return []string{"after the end of a run"}, nil
	}
	fires, err := s.Next(now, n)
	if err != nil {
		return nil, err
	}
	if len(fires) == 0 {
		return []string{noFires}, nil
	}
	var texts []string
	for _, t := range fires {
		texts = append(texts, t.Format("2006-01-02 15:04:05 MST"))
	}
	return texts, nil
}

// shorten returns a text of at most width runes.
func shorten(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// alignColumns returns rows with two spaces between their columns.
func alignColumns(rows [][]string) string {
	widths := map[int]int{}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]+2-utf8.RuneCountInString(cell))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// namedSchedule is the schedule of a job.
type namedSchedule struct {
	job string
	schedule.Schedule
}

// schedulesOf returns the schedules of all jobs of a file.
func schedulesOf(f *jobsfile.File) (all []namedSchedule) {
	for _, j := range f.Jobs {
		all = append(all, namedSchedule{j.Name, j.Schedule})
	}
	for i := range f.Defined {
		all = append(all, namedSchedule{f.Defined[i].Name, f.Defined[i].Schedule})
	}
	return all
}

// listUnknownFollowed returns a warning for each job that follows one which the file does not have. It may be a job
// of another process, or a misspelt name.
func listUnknownFollowed(f *jobsfile.File) (warnings []string) {
	all := schedulesOf(f)
	known := map[string]bool{}
	for _, s := range all {
		known[s.job] = true
	}
	for _, s := range all {
		for _, name := range s.After() {
			if !known[name] {
				warnings = append(warnings, fmt.Sprintf("job %q follows %q, which is not in this file", s.job, name))
			}
		}
	}
	return warnings
}

// listEnded returns a warning for each job whose fires are all in the past.
func listEnded(f *jobsfile.File, now time.Time) (warnings []string) {
	for _, s := range schedulesOf(f) {
		if next, err := nextFires(s.Schedule, 1, now); err == nil && slices.Equal(next, []string{noFires}) {
			warnings = append(warnings, fmt.Sprintf("job %q has no fires from now on", s.job))
		}
	}
	return warnings
}
