package draw

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/web/internal/past"
)

// LogPart is the part of the page of a run that has its logs.
type LogPart struct {
	// Note explains why there are no logs, or which are not on the page.
	Note string
	Runs []LogOfRun
	// Again is after how many milliseconds the page is to be fetched again. Zero means that no line is to come.
	Again int
}

// LogOfRun is the log of an attempt.
type LogOfRun struct {
	Title string
	Lines []LogLine
}

// LogLine is a line of a log. ID stays the same while lines are added.
type LogLine struct {
	ID, At, Exact, Kind, Text string
}

// Notes of the part that has the logs.
const (
	LogNeedsReveal = "The log needs the role reveal."
	// LogWithoutHistory is for a console without a history.
	LogWithoutHistory = "There is no log, since the console has no history: start it with one (rota web --history, or Options.History), " +
		"and have the fleet record to it."
	// LogUnreadable is for a history whose logs cannot be read.
	LogUnreadable = "The log cannot be read now; the log of the console has the cause. If the table rota_log is missing, history.Migrate creates it."
	// LogEmpty is for a run without a log.
	LogEmpty = "No log of this run is on record. Either it wrote nothing, or its process keeps no logs (LogOptions.Off, Skip or KeepFires; in a jobs " +
		"file, log: false), or the log was deleted: by default a week, and of runs that did not fail 20 fires of the job, are kept."
)

// LogAgain is how soon the page of a run that goes on is to be fetched again. A line is in the history within a second, and on the page within
// two.
const LogAgain = 500 * time.Millisecond

// LogPartOf returns the logs of the attempts of a shard, and how many are left out before them. Follow says that a run goes on.
func LogPartOf(logs []*past.RunLog, left int, follow bool, t view.Times) LogPart {
	p := LogPart{}
	switch {
	case left > 0:
		p.Note = fmt.Sprintf("These are the logs of the last %d attempts; rota logs prints those before.", len(logs))
	case len(logs) == 0 && !follow:
		p.Note = LogEmpty
	case len(logs) == 0:
		p.Note = "Nothing has been logged yet."
	}
	if follow {
		p.Again = int(LogAgain.Milliseconds())
	}
	for _, l := range logs {
		of := LogOfRun{Title: fmt.Sprintf("Attempt %d on %s", l.Attempt, l.Instance)}
		if l.Trigger != 0 {
			of.Title += fmt.Sprintf(", trigger #%d", l.Trigger)
		}
		for i := range l.Lines {
			of.Lines = append(of.Lines, logLineOf(&l.Lines[i], t))
		}
		p.Runs = append(p.Runs, of)
	}
	return p
}

func logLineOf(l *view.LogLine, t view.Times) LogLine {
	line := LogLine{ID: fmt.Sprintf("l%d-%d-%d-%d", l.Fence, l.Trigger, l.Attempt, l.Line), Kind: l.Kind, Text: l.Text}
	if l.Kind == history.LogMissing { // it stands before the line of the number
		line.ID += "-gap"
	}
	if !l.At.IsZero() {
		line.At, line.Exact = l.At.In(zoneOf(t)).Format("15:04:05.000"), exact(t, l.At)
	}
	return line
}
