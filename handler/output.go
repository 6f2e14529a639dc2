package handler

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/mutex"
)

// maxLine bounds a line of output in the log.
const maxLine = 4 << 10

// The bound of the output in the log is by the minute of a run and not by the run: a daemon's run lasts for months.
const (
	defaultLogLimit = 1 << 20
	logWindow       = time.Minute
	lineCost        = 128 // about the size of a record without its line
)

// output logs the output of a program line by line, and keeps its end.
type output struct {
	log   *slog.Logger
	logs  []slog.Handler // which receive all lines
	limit int            // of a window of log; below zero: nothing is logged

	mu     mutex.Mutex // the streams are read by a goroutine each
	kept   []byte      // the end of both streams, as they arrived
	window time.Time   // its begin
	logged int         // the cost of the lines of the window
	cut    struct{ lines, bytes int }
	later  []func() // log lines, called once mu is unlocked
}

func newOutput(log *slog.Logger, logs []slog.Handler, limit int) *output {
	return &output{log: log, logs: logs, limit: cmp.Or(limit, defaultLogLimit), window: time.Now()}
}

// stream is the writer of one stream of a program.
type stream struct {
	out  *output
	name string
	line []byte // begun and not ended
	last string // that was logged
	cut  int    // bytes of it beyond maxLine
}

func (o *output) stream(name string) *stream { return &stream{out: o, name: name} }

// Write never fails, and waits for the logger, so that a program that writes faster than its
// output can be logged is slowed down.
func (s *stream) Write(p []byte) (int, error) {
	s.out.logAfter(func() { s.splitLocked(p) })
	return len(p), nil
}

// splitLocked keeps the output, and logs the lines that it ends.
func (s *stream) splitLocked(p []byte) {
	s.out.keepLocked(p)
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		n := min(len(part), maxLine-len(s.line))
		s.line = append(s.line, part[:n]...)
		s.cut += len(part) - n
		if ended {
			s.logLineLocked()
		}
		rest = after
	}
}

// logLineLocked logs the line that was begun, unless it is empty.
func (s *stream) logLineLocked() {
	size := len(s.line) + s.cut
	line := strings.ToValidUTF8(strings.TrimSuffix(string(s.line), "\r"), string(utf8.RuneError))
	attrs := []slog.Attr{slog.String("stream", s.name), slog.String("line", line)}
	if s.cut > 0 {
		attrs = append(attrs, slog.Int("cut", s.cut))
	}
	s.line, s.cut = s.line[:0], 0
	if line != "" {
		s.last = line
		if len(s.out.logs) > 0 {
			r := slog.NewRecord(time.Now(), slog.LevelInfo, "output", 0)
			r.AddAttrs(attrs...)
			s.out.later = append(s.out.later, func() { s.out.record(r) })
		}
		if s.out.admitLocked(len(line), size) {
			s.out.later = append(s.out.later, func() { s.out.log.LogAttrs(context.Background(), slog.LevelInfo, "output", attrs...) })
		}
	}
}

// record passes a line to the handlers that receive all lines. Those of observers recover panics.
func (o *output) record(r slog.Record) {
	for _, h := range o.logs {
		if h.Enabled(context.Background(), r.Level) {
			_ = h.Handle(context.Background(), r)
		}
	}
}

// admitLocked reports whether a line is logged. Once one is not, none is until the next window, so that what is logged has no gaps.
func (o *output) admitLocked(length, size int) bool {
	if o.limit < 0 {
		return false
	}
	if now := time.Now(); now.Sub(o.window) >= logWindow {
		o.reportCutLocked()
		o.window, o.logged = now, 0
	}
	if cost := length + lineCost; o.cut.lines == 0 && cost <= o.limit-o.logged {
		o.logged += cost
		return true
	}
	o.cut.lines++
	o.cut.bytes += size
	return false
}

// reportCut logs how much was not logged.
func (o *output) reportCut() { o.logAfter(o.reportCutLocked) }

// logAfter calls do with o.mu held, and then the functions that do has added to o.later.
func (o *output) logAfter(do func()) {
	o.mu.Lock()
	do()
	later := o.later
	o.later = nil
	o.mu.Unlock()
	for _, log := range later {
		log()
	}
}

func (o *output) reportCutLocked() {
	if o.cut.lines > 0 {
		cut, end := o.cut, o.tailLocked()
		o.later = append(o.later, func() { o.log.Info("output cut", "lines", cut.lines, "bytes", cut.bytes, "end", end) })
		o.cut.lines, o.cut.bytes = 0, 0
	}
}

// flush logs a last line that has no end.
func (s *stream) flush() { s.out.logAfter(s.logLineLocked) }

func (o *output) keepLocked(p []byte) {
	p = p[max(0, len(p)-maxTail):]
	if over := len(o.kept) + len(p) - maxTail; over > 0 {
		o.kept = append(o.kept[:0], o.kept[over:]...)
	}
	o.kept = append(o.kept, p...)
}

// tail returns the last maxTail bytes of the output, without half a character.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tailLocked()
}

func (o *output) tailLocked() string {
	kept := o.kept
	for range utf8.UTFMax - 1 { // the rest of a character that was cut
		if len(o.kept) == maxTail && !utf8.RuneStart(kept[0]) {
			kept = kept[1:]
		}
	}
	return strings.ToValidUTF8(string(kept), string(utf8.RuneError))
}

// filter is a filter of users. It accepts each write, as os/exec would close the pipe of the program otherwise.
type filter struct {
	to     io.WriteCloser
	log    *slog.Logger
	failed bool
}

// Write implements io.Writer. It is called in a goroutine of os/exec, where nothing else recovers a panic.
func (f *filter) Write(p []byte) (int, error) {
	f.call(func() error { _, err := f.to.Write(p); return err })
	return len(p), nil
}

// close has the filter write what it has held back.
func (f *filter) close() { f.call(f.to.Close) }

func (f *filter) call(do func() error) {
	if f.failed {
		return
	}
	if err := contain.CallApart("Filter", do); err != nil {
		f.failed = true
		f.log.Error("filter of the output failed", "error", err, "next", "the rest of this stream of the run is neither logged nor kept",
			"remedy", "correct handler.Cmd.Filter")
	}
}
