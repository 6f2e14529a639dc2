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
		for i, text := range next {
			row := []string{"", "", "", "", text}
			if i == 0 {
				row = []string{shorten(j.Name, jobWidth), strconv.Itoa(max(j.Shards, 1)), shorten(j.Schedule.String(), scheduleWidth), j.Local, text}
			}
			rows = append(rows, row)
		}
	}
	stores := "registry " + t.url
	if f.History.URL != "" {
		stores += ", history " + historyurl.Redact(f.History.URL)
	}
	holds := count.Of(len(f.Jobs), "job")
	if len(f.Kinds) > 0 {
		holds += ", " + count.Of(len(f.Kinds), "kind")
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
	return title + strings.Join(tables, "\n"), nil
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

// listUnknownFollowed returns a warning for each job that follows one which the file does not have. It may be a job
// of another process, or a misspelt name.
func listUnknownFollowed(f *jobsfile.File) (warnings []string) {
	known := map[string]bool{}
	for _, j := range f.Jobs {
		known[j.Name] = true
	}
	for _, j := range f.Jobs {
		for _, name := range j.Schedule.After() {
			if !known[name] {
				warnings = append(warnings, fmt.Sprintf("job %q follows %q, which is not in this file", j.Name, name))
			}
		}
	}
	return warnings
}

// listEnded returns a warning for each job whose fires are all in the past.
func listEnded(f *jobsfile.File, now time.Time) (warnings []string) {
	for _, j := range f.Jobs {
		if next, err := nextFires(j.Schedule, 1, now); err == nil && slices.Equal(next, []string{noFires}) {
			warnings = append(warnings, fmt.Sprintf("job %q has no fires from now on", j.Name))
		}
	}
	return warnings
}
