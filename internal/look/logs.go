package look

import (
	"context"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
)

// forgetLog is how long after its last piece the place in the log of a run that has ended is known.
const forgetLog = time.Minute

// LogReader reads the lines of logs of one job, each line once.
type LogReader struct {
	places map[logOf]*logPlace
	latest time.Time // when the latest piece was written
	skip   time.Time // pieces of other logs that were written until then are left out
}

// logOf identifies the log of a run.
type logOf struct {
	run, instance string
	fence         uint64
}

type logPlace struct {
	history.LogCursor
	ended, skipped bool
	at             time.Time // when its latest piece was written
}

// NewLogReader returns a LogReader that has read nothing.
func NewLogReader() *LogReader { return &LogReader{places: map[logOf]*logPlace{}} }

// Read returns the lines that q selects and that were not returned before, in the order in which they were written. It ends once it has
// at least most lines, if that is above 0; the rest is not read then. A history without logs has no lines.
func (l *LogReader) Read(ctx context.Context, r history.Reader, q history.LogQuery, most int) (lines []view.LogLine, err error) {
	return lines, l.Scan(ctx, r, q, func(next []view.LogLine) bool {
		lines = append(lines, next...)
		return most == 0 || len(lines) < most
	})
}

// Scan calls yield with the lines of Read, those of one piece at a time, until it returns false. It holds q.Limit pieces in memory.
func (l *LogReader) Scan(ctx context.Context, r history.Reader, q history.LogQuery, yield func([]view.LogLine) bool) error {
	logs, ok := r.(history.LogReader)
	if !ok {
		return nil
	}
	for {
		pieces, err := logs.Logs(ctx, q)
		if err != nil {
			return err
		}
		for i := range pieces {
			if lines := l.linesOf(&pieces[i], !q.Since.IsZero()); len(lines) > 0 && !yield(lines) {
				return nil
			}
		}
		if len(pieces) < q.Limit {
			return nil
		}
		if last := pieces[len(pieces)-1].Written; last.After(q.Since) {
			q.Since = last // the next ones, and those of this instant again
		} else {
			q.Limit *= 2
		}
	}
}

// linesOf returns the lines of a piece that were not returned before. Later says that the query leaves out earlier pieces.
func (l *LogReader) linesOf(p *history.Log, later bool) []view.LogLine {
	of := logOf{p.Run, p.Instance, p.Fence}
	at := l.places[of]
	first := at == nil
	if first {
		at = &logPlace{}
		l.places[of] = at
	}
	at.skipped = at.skipped || first && !p.Written.After(l.skip)
	lines := view.LogLinesOf(p, &at.LogCursor)
	switch {
	case at.skipped && !p.Written.After(l.skip):
		lines = nil
	case first && later && len(lines) > 0 && lines[0].Kind == history.LogMissing:
		lines = lines[1:] // they were written before
	}
	at.ended, at.at = at.ended || p.Outcome != "", p.Written
	if p.Written.After(l.latest) {
		l.latest = p.Written
	}
	return lines
}

// Latest returns when the latest piece that was read had been written, zero if there is none.
func (l *LogReader) Latest() time.Time { return l.latest }

// SkipOthers leaves out what other runs have logged so far.
func (l *LogReader) SkipOthers() { l.skip = l.latest }

// Forget forgets the places in logs that have ended.
func (l *LogReader) Forget() {
	for of, p := range l.places {
		if p.ended && l.latest.Sub(p.at) > forgetLog {
			delete(l.places, of)
		}
	}
}

// Logs returns lines of the logs of a job from the history, at most about most of them unless that is 0. Known reports whether the
// history has anything of the job.
func Logs(ctx context.Context, r history.Reader, q history.LogQuery, most int) (v view.Logs, known bool, err error) {
	lines, err := NewLogReader().Read(ctx, r, q, most)
	if known = len(lines) > 0; err == nil && !known {
		known, err = isKnown(ctx, r, q.Job)
	}
	return view.LogsOf(q.Job, lines, time.Now()), known, err
}

// HasLogs reports whether a history can have logs.
func HasLogs(r history.Reader) bool {
	_, ok := r.(history.LogReader)
	return ok
}

// WithoutLogs explains why a history has no logs of any run, and what to do.
const WithoutLogs = "This history has no logs, since its reader is not a LogReader: record to history.SQL or history.NewRing, " +
	"and leave LogOptions.Off unset."
