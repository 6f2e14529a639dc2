package history

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
)

// MaxLogText bounds the text of a piece of a log, in bytes.
const MaxLogText = 16 << 10

// Log is a piece of the log of a run: lines that the run logged by executor.Run.Logger, or that its program printed. Its key is
// Namespace, Group, Job, Fire, Run, Instance, Fence and Piece.
//
// The pieces of a run are counted from 0. Of a long log the first and the last ones are kept: those between are deleted, or were
// never written. The size of a gap before a piece follows from Line and Byte.
type Log struct {
	Namespace string    `json:"namespace"`
	Group     string    `json:"group"`
	Job       string    `json:"job"`
	Fire      time.Time `json:"fire"`
	Trigger   uint64    `json:"trigger,omitzero"`
	// Run is the ID of the run. It and the other fields are described at executor.Run.
	Run      string `json:"run"`
	Instance string `json:"instance"`
	Fence    uint64 `json:"fence"`
	Shard    int    `json:"shard"`
	Attempt  int    `json:"attempt"`

	Piece int `json:"piece"`
	// Line and Byte are how many lines the log had before this piece, and how many bytes.
	Line int64 `json:"line"`
	Byte int64 `json:"byte"`
	// Lines is the number of lines of Text.
	Lines int `json:"lines"`
	// Text is the lines. Each has its time, a blank, its kind, a blank, the text, and a line feed. See LogLine.
	Text string `json:"text"`
	// Head and From say that the pieces from Head to before From do not belong to the log any more. Both are 0 if all do.
	Head int `json:"head,omitzero"`
	From int `json:"from,omitzero"`
	// Outcome is that of the run. Only the last piece has one.
	Outcome Outcome `json:"outcome,omitzero"`
	// Written is when the Recorder wrote the piece, by the clock of its instance.
	Written time.Time `json:"written"`
}

// LogSink is implemented by a Sink that keeps logs. A Recorder whose sink does not implement it asks for no logs, which then cost
// nothing.
type LogSink interface {
	// WriteLogs stores pieces of logs, of which it must not keep the slice. Those of a run are in order. A piece whose key is
	// stored already changes nothing. ctx ends after 5 s, or when Recorder.Shutdown gives up.
	WriteLogs(ctx context.Context, pieces []Log) error
}

// LogReader is implemented by the readers of SQLStore and Ring.
type LogReader interface {
	// Logs returns the pieces that q selects, in the order in which they were written, and of each run in the order of its
	// pieces. Pieces that do not belong to a log any more may be among them: LogCursor leaves those out.
	Logs(ctx context.Context, q LogQuery) ([]Log, error)
}

// LogQuery selects pieces of the logs of a job. Zero values of the fields but Job select all.
type LogQuery struct {
	Job     string
	Fire    time.Time
	Trigger uint64
	Shards  []int
	Run     string // an ID
	// Latest selects the latest fire that has a log.
	Latest bool
	// Since selects the pieces that were written then or later. To follow a log, repeat the query with a Since some seconds before
	// the latest Written that was returned, as the clocks of instances differ.
	Since time.Time
	// Limit is the most pieces to return, the first ones. Zero means 1000.
	Limit int
}

// normalize returns q with values as sinks hold them.
func (q LogQuery) normalize() LogQuery {
	q.Job, q.Run, q.Fire, q.Since, q.Limit = cleanKey(q.Job, maxJob), cleanKey(q.Run, maxID), roundTime(q.Fire), roundTime(q.Since), limitOf(q.Limit)
	q.Trigger = min(q.Trigger, math.MaxInt64)
	return q
}

// selects reports whether a normalized query of a group selects a piece, apart from Latest.
func (q *LogQuery) selects(p *Log) bool {
	return p.Job == q.Job && (q.Fire.IsZero() || p.Fire.Equal(q.Fire)) && (q.Trigger == 0 || p.Trigger == q.Trigger) &&
		(q.Shards == nil || slices.Contains(q.Shards, p.Shard)) && (q.Run == "" || p.Run == q.Run) && !p.Written.Before(q.Since)
}

// sortLogs orders pieces as LogReader.Logs returns them.
func sortLogs(pieces []Log) {
	slices.SortStableFunc(pieces, func(a, b Log) int {
		return cmp.Or(a.Written.Compare(b.Written), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Piece, b.Piece))
	})
}

// normalize returns p as every sink can hold it and a Reader returns it. The text is clean already.
func (p Log) normalize() Log {
	p.Namespace, p.Group = cleanKey(p.Namespace, maxNamespace), cleanKey(p.Group, maxGroup)
	p.Run, p.Job, p.Instance = cleanKey(p.Run, maxID), cleanKey(p.Job, maxJob), cleanKey(p.Instance, maxInstance)
	p.Fire, p.Written = roundTime(p.Fire), roundTime(p.Written)
	p.Trigger, p.Fence = min(p.Trigger, math.MaxInt64), min(p.Fence, math.MaxInt64)
	p.Shard, p.Attempt = fitInt32(p.Shard), fitInt32(p.Attempt)
	return p
}

// Kinds of lines. Those of a logger are levels: "debug", "info", "warn" or "error".
const (
	LogStdout  = "stdout"
	LogStderr  = "stderr"
	LogPanic   = "panic"   // the error and the stack of a run that panicked
	LogMissing = "missing" // how much of the log is not there
	LogEnd     = "end"     // the outcome of the run, which is the text
)

// LogLine is a line of the log of a run. A record of several lines of text is several lines of one time and kind.
type LogLine struct {
	// At is when the line was logged or printed. It is zero for LogMissing.
	At   time.Time `json:"at,omitzero"`
	Kind string    `json:"kind"`
	Text string    `json:"text"`
}

const logTime = "2006-01-02T15:04:05.000Z"

// appendLogLine appends a line in the form of Log.Text.
func appendLogLine(to []byte, at time.Time, kind, text string) []byte {
	to = at.UTC().AppendFormat(to, logTime)
	to = append(append(to, ' '), kind...)
	to = append(append(to, ' '), text...)
	return append(to, '\n')
}

// linesOf returns the lines of a text of a piece.
func linesOf(text string) iter.Seq[LogLine] {
	return func(yield func(LogLine) bool) {
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			at, rest, _ := strings.Cut(line, " ")
			kind, text, ok := strings.Cut(rest, " ")
			l := LogLine{Kind: kind, Text: text}
			var err error
			if l.At, err = time.Parse(logTime, at); err != nil || !ok {
				l = LogLine{Text: line} // of a later version
			}
			if !yield(l) {
				return
			}
		}
	}
}

// LogCursor is a place in the log of one run. The zero LogCursor is the begin of a log.
type LogCursor struct {
	line, bytes int64
	ended       bool
}

// Read returns the lines of a piece that come after the cursor, and moves it. A line of the kind LogMissing stands for those that
// are missing before them, and one of the kind LogEnd for the end of the run. Pieces must come in order; one that was read
// already adds nothing, so a reader may follow a log by reading the latest pieces again and again.
func (c *LogCursor) Read(p *Log) (lines []LogLine) {
	if p.Line < c.line || p.Line == c.line && p.Lines == 0 && p.Outcome == "" || c.ended {
		return nil
	}
	if missing := p.Line - c.line; missing > 0 {
		lines = append(lines, LogLine{Kind: LogMissing, Text: describeMissing(missing, p.Byte-c.bytes)})
	}
	lines = slices.AppendSeq(lines, linesOf(p.Text))
	c.line, c.bytes = p.Line+int64(p.Lines), p.Byte+int64(len(p.Text))
	if p.Outcome != "" {
		c.ended = true
		lines = append(lines, LogLine{At: p.Written, Kind: LogEnd, Text: string(p.Outcome)})
	}
	return lines
}

func describeMissing(lines, bytes int64) string {
	if lines == 1 {
		return fmt.Sprintf("1 line (%d bytes) is missing", bytes)
	}
	return fmt.Sprintf("%d lines (%d bytes) are missing", lines, bytes)
}

// LogLines returns the lines of the log of one run, of which pieces are all that a LogReader has returned.
func LogLines(pieces []Log) (lines []LogLine) {
	pieces = slices.Clone(pieces)
	slices.SortFunc(pieces, func(a, b Log) int { return cmp.Compare(a.Piece, b.Piece) })
	head, from := 0, 0
	for i := range pieces {
		head, from = max(head, pieces[i].Head), max(from, pieces[i].From)
	}
	var c LogCursor
	for i := range pieces {
		if p := &pieces[i]; p.Piece < head || p.Piece >= from {
			lines = append(lines, c.Read(p)...)
		}
	}
	return lines
}

// logKey identifies the log of a run.
type logKey struct {
	fireKey // without the trigger
	run     string
	fence   uint64
}

func logKeyOf(p *Log) logKey {
	return logKey{fireKey{p.Namespace, p.Group, p.Job, p.Instance, p.Fire.UnixMicro(), 0}, p.Run, p.Fence}
}
