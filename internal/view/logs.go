package view

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/history"
)

// Logs are lines of the logs of runs of a job.
type Logs struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Job     string    `json:"job"`
	Lines   []LogLine `json:"lines"` // in the order in which they were written
	Note    string    `json:"note,omitempty"`
}

// LogLine is a line of the log of a run.
type LogLine struct {
	Shard    int       `json:"shard"`
	Fire     time.Time `json:"fire"`
	Trigger  uint64    `json:"trigger,omitempty"`
	Attempt  int       `json:"attempt"`
	Instance string    `json:"instance"`
	Run      string    `json:"run"`
	// Line is the number of the line in the log of its run, from 0: with Run and Fence it identifies the line.
	Line  int64  `json:"line"`
	Fence uint64 `json:"fence"`
	history.LogLine
}

// LogsOf returns lines of a job.
func LogsOf(job string, lines []LogLine, now time.Time) Logs {
	return Logs{Version: Version, At: now, Job: job, Lines: lines}
}

// LogLinesOf returns the lines of a piece, from the place that a cursor has reached.
func LogLinesOf(p *history.Log, c *history.LogCursor) (lines []LogLine) {
	line := p.Line
	for _, l := range c.Read(p) {
		lines = append(lines, LogLine{p.Shard, p.Fire, p.Trigger, p.Attempt, p.Instance, p.Run, line, p.Fence, l})
		if l.Kind != history.LogMissing { // which stands before the first line of the piece
			line++
		}
	}
	return lines
}

// Screen returns a line of text for each line: time, shard, kind and text.
func (v Logs) Screen(t Times) Screen {
	var s Section
	for _, l := range v.Lines {
		at := "-"
		if !l.At.IsZero() {
			at = t.zoned(l.At).Format("2006-01-02T15:04:05.000Z07:00")
		}
		s.Lines = append(s.Lines, fmt.Sprintf("%-24s %4d %-7s %s", at, l.Shard, l.Kind, l.Text))
	}
	if len(v.Lines) == 0 {
		s.Lines = []string{"no log"}
	}
	return Screen{s, noteSection(v.Note)}
}

// Names returns the IDs of the runs.
func (v Logs) Names() (names []string) {
	seen := map[string]bool{}
	for _, l := range v.Lines {
		if !seen[l.Run] {
			seen[l.Run] = true
			names = append(names, l.Run)
		}
	}
	return names
}

// Items returns the lines.
func (v Logs) Items() []any { return itemsOf(v.Lines) }
