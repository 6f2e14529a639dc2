package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// Batch is records to write together.
type Batch struct {
	Fires []Fire
	Runs  []Run
}

// Sink stores records. A Recorder calls one method at a time.
//
// Implementations must be idempotent: after an error a Recorder writes the same records again, together with others or
// in smaller batches, though the first call may have stored them. A record whose key is stored already changes nothing, with one
// exception: a Run replaces one that is stored as Crashed, unless it is Crashed itself. See Run.
type Sink interface {
	// Write stores a batch, of which it must not keep the slices. ctx ends after 15 s, or when Recorder.Shutdown gives up.
	Write(ctx context.Context, b Batch) error
}

// Trimmer is implemented by a Sink with retention. A Recorder calls Trim about every ten minutes, and as long as Trim
// returns true, again between two batches. Trim should take little time.
type Trimmer interface {
	Trim(ctx context.Context, now time.Time) (more bool, err error)
}

// SinkFunc is a Sink that is a function.
type SinkFunc func(ctx context.Context, b Batch) error

// Write calls f.
func (f SinkFunc) Write(ctx context.Context, b Batch) error { return f(ctx, b) }

// Tee returns a Sink that writes each batch to all sinks. If one fails, all receive the batch again, so a sink that is
// away holds up the others. Logs go to those that are a LogSink. Use a Recorder for each, and Executor.Observe, where that matters.
func Tee(sinks ...Sink) Sink {
	for _, s := range sinks {
		if _, ok := s.(LogSink); ok {
			return logTee{sinks}
		}
	}
	return tee(sinks)
}

type tee []Sink

// logTee is a tee of which a sink keeps logs.
type logTee struct{ tee }

// WriteLogs is described in LogSink.
func (t logTee) WriteLogs(ctx context.Context, pieces []Log) error {
	var errs []error
	for _, s := range t.tee {
		if s, ok := s.(LogSink); ok {
			errs = append(errs, s.WriteLogs(ctx, pieces))
		}
	}
	return errors.Join(errs...)
}

func (t tee) Write(ctx context.Context, b Batch) error {
	var errs []error
	for _, s := range t {
		errs = append(errs, s.Write(ctx, b))
	}
	return errors.Join(errs...)
}

func (t tee) Trim(ctx context.Context, now time.Time) (more bool, err error) {
	var errs []error
	for _, s := range t {
		if s, ok := s.(Trimmer); ok {
			m, err := s.Trim(ctx, now)
			more = more || m
			errs = append(errs, err)
		}
	}
	return more, errors.Join(errs...)
}

// JSONLines returns a Sink that writes each record as a line of JSON, with one call of w.Write for a batch. The field
// "kind" is "run", "fire" or "log"; the others are those of Run, Fire and Log.
//
// If a write fails, the records are written again. Readers should ignore a line that is cut off, and the second of two
// lines with one key; of two runs, the one that is crashed if the other is not.
func JSONLines(w io.Writer) Sink { return &jsonLines{w: w} }

type jsonLines struct {
	mu   sync.Mutex
	w    io.Writer
	torn bool // the last line may lack its end
}

func (j *jsonLines) Write(_ context.Context, b Batch) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	text, enc := j.beginLocked()
	for i := range b.Fires {
		if err := enc.Encode(struct {
			Kind string `json:"kind"`
			*Fire
		}{"fire", &b.Fires[i]}); err != nil {
			return err
		}
	}
	for i := range b.Runs {
		if err := enc.Encode(struct {
			Kind string `json:"kind"`
			*Run
		}{"run", &b.Runs[i]}); err != nil {
			return err
		}
	}
	return j.writeLocked(text)
}

// WriteLogs is described in LogSink.
func (j *jsonLines) WriteLogs(_ context.Context, pieces []Log) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	text, enc := j.beginLocked()
	for i := range pieces {
		if err := enc.Encode(struct {
			Kind string `json:"kind"`
			*Log
		}{"log", &pieces[i]}); err != nil {
			return err
		}
	}
	return j.writeLocked(text)
}

// beginLocked returns a text of lines, and what adds to it.
func (j *jsonLines) beginLocked() (*bytes.Buffer, *json.Encoder) {
	var text bytes.Buffer
	if j.torn {
		text.WriteByte('\n')
	}
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	return &text, enc
}

func (j *jsonLines) writeLocked(text *bytes.Buffer) error {
	n, err := j.w.Write(text.Bytes())
	if err != nil {
		j.torn = j.torn || n > 0
		return err
	}
	j.torn = false
	return nil
}
