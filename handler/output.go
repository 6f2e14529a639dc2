package handler

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxLine bounds a line of output in the log.
const maxLine = 4 << 10

// output logs the output of a program line by line, and keeps its end.
type output struct {
	log *slog.Logger

	mu   sync.Mutex // the streams are read by a goroutine each
	kept []byte     // the end of both streams, as they arrived
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
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
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
	return len(p), nil
}

// logLineLocked logs the line that was begun, unless it is empty.
func (s *stream) logLineLocked() {
	line := strings.ToValidUTF8(strings.TrimSuffix(string(s.line), "\r"), string(utf8.RuneError))
	attrs := []slog.Attr{slog.String("stream", s.name), slog.String("line", line)}
	if s.cut > 0 {
		attrs = append(attrs, slog.Int("cut", s.cut))
	}
	s.line, s.cut = s.line[:0], 0
	if line != "" {
		s.last = line
		s.out.log.LogAttrs(context.Background(), slog.LevelInfo, "output", attrs...)
	}
}

// flush logs a last line that has no end.
func (s *stream) flush() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.logLineLocked()
}

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
	return strings.ToValidUTF8(string(o.kept), "")
}
