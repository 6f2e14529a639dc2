package history

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/contain"
)

// writer is the state of the loop of a Recorder.
type writer struct {
	*Recorder
	size      int           // of the next batch, at most
	pause     time.Duration // after the next failure
	successes int64         // of Sink.Write
	failing   error         // the last failure; nil after a success
	trimAt    time.Time

	logFlight  []takenLog // being written, in order
	logSize    int        // of the next batch of pieces, at most
	logPause   time.Duration
	logRetryAt time.Time // zero: the last call of WriteLogs succeeded
	logAlone   time.Time // since when calls with the first piece alone have failed, zero if the last one did not
	logFailing error

	reported   Dropped
	reportedAt time.Time
}

// loop writes records until the Recorder is closed and has none, or ctx ends.
func (r *Recorder) loop(ctx context.Context) {
	defer close(r.closed)
	w := &writer{Recorder: r, size: batchMost, pause: firstPause, logSize: logBatch, logPause: firstPause, trimAt: time.Now().Add(rand.N(trimEvery))}
	defer w.logLost()
	for ctx.Err() == nil {
		w.reportDropped()
		due, n, closing := w.fillFlight()
		if n > 0 {
			w.writeBatch(ctx)
		}
		logDue := time.Time{}
		if w.failing == nil || n == 0 || closing { // a sink that is away for records is not asked to store logs
			logDue = w.writeLogs(ctx, closing)
		}
		switch {
		case n > 0 || len(w.logFlight) > 0 && w.logRetryAt.IsZero():
		case closing:
			return
		default:
			w.await(ctx, earliest(due, logDue))
		}
		if w.failing == nil && !closing {
			w.trimIfDue(ctx)
		}
	}
}

// fillFlight takes records that are due until a batch is full. It returns the number of records to write or, if there
// are none, when one is due.
func (w *writer) fillFlight() (due time.Time, n int, closing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flight = append(w.flight, w.pending.take(time.Now(), batchMost-len(w.flight), w.closing)...)
	return w.pending.nextDue(), len(w.flight), w.closing
}

// earliest returns the first of two times of which a zero one does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// await returns when a record is due or there is other work. A zero due means that there is no record.
func (w *writer) await(ctx context.Context, due time.Time) {
	until := time.Now().Add(reportEvery)
	if _, ok := w.sink.(Trimmer); ok && w.trimAt.Before(until) {
		until = w.trimAt
	}
	if !due.IsZero() && due.Before(until) {
		until = due
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake:
	case <-ctx.Done():
	}
}

// writeBatch writes the first records of the flight. After a failure it waits, and makes the next batch smaller, so
// that a record which the sink refuses is alone at last.
func (w *writer) writeBatch(ctx context.Context) {
	n := min(w.size, len(w.flight))
	err := w.write(ctx, w.flight[:n])
	if err == nil {
		w.successes++
		w.mu.Lock()
		w.written += int64(n)
		w.flight = w.flight[:copy(w.flight, w.flight[n:])]
		w.mu.Unlock()
		w.size, w.pause = min(w.size*shrink, batchMost), firstPause
		if w.failing != nil {
			w.log.Info("history is written again")
			w.failing = nil
		}
		return
	}
	if ctx.Err() != nil {
		return
	}
	if w.failing == nil && time.Since(w.reportedAt) >= reportEvery {
		w.reportedAt = time.Now()
		w.log.Warn("history not written: retrying", slog.Int("records", n), slog.Any("error", err))
	}
	w.failing = err
	if n == 1 {
		w.setAside(err)
	}
	w.size = max(1, n/shrink)
	w.awaitRetry(ctx)
}

func (w *writer) write(ctx context.Context, records []record) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var b Batch
	for _, rec := range records {
		if rec.fire != nil {
			b.Fires = append(b.Fires, *rec.fire)
		} else {
			b.Runs = append(b.Runs, *rec.run)
		}
	}
	return contain.CallApart("Sink.Write", func() error { return w.sink.Write(ctx, b) })
}

// setAside moves the first record, whose write alone failed, behind the others, or drops it if the sink has refused it
// several times and stored others in between. A sink that stores none is away, and refuses no record.
func (w *writer) setAside(err error) {
	if name := w.moveFirst(); name != "" {
		w.log.Error("history record refused: dropped", slog.String("record", name), slog.Any("error", err))
	}
}

// moveFirst is setAside without the log. It returns the name of a record that it has dropped.
func (w *writer) moveFirst() (dropped string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec := w.flight[0]
	if rec.failures == 0 || w.successes > rec.successes {
		rec.failures++
		rec.successes = w.successes
	}
	w.flight = w.flight[:copy(w.flight, w.flight[1:])]
	if rec.failures < refusals {
		w.flight = append(w.flight, rec)
		return ""
	}
	w.pending.dropped.Refused++
	if rec.run != nil {
		return rec.run.ID
	}
	return "fire"
}

// awaitRetry waits for the pause, which doubles. Shutdown ends the first pause that it meets.
func (w *writer) awaitRetry(ctx context.Context) {
	// Up to half as long again: instances that lost one database must not return at once.
	timer := time.NewTimer(w.pause + rand.N(w.pause/2))
	defer timer.Stop()
	w.pause = min(2*w.pause, longestPause)
	w.mu.Lock()
	wasClosing := w.closing
	w.mu.Unlock()
	for {
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-w.wake:
			w.mu.Lock()
			closing := w.closing
			w.mu.Unlock()
			if closing && !wasClosing {
				w.pause = firstPause
				return
			}
		}
	}
}

// trimIfDue calls Trim once if a round has begun or is due.
func (w *writer) trimIfDue(ctx context.Context) {
	t, ok := w.sink.(Trimmer)
	now := time.Now()
	if !ok || now.Before(w.trimAt) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	more := false
	err := contain.CallApart("Sink.Trim", func() (err error) {
		more, err = t.Trim(ctx, now)
		return err
	})
	if err != nil {
		w.log.Warn("history not trimmed", slog.Any("error", err))
	}
	if more && err == nil {
		w.trimAt = time.Now().Add(trimPause)
	} else {
		w.trimAt = time.Now().Add(trimEvery/2 + rand.N(trimEvery))
	}
}

// reportDropped logs once a minute how many records were dropped and why.
func (w *writer) reportDropped() {
	if time.Since(w.reportedAt) < reportEvery {
		return
	}
	w.mu.Lock()
	d, waiting := w.droppedLocked(), w.pending.size()+len(w.flight)
	w.mu.Unlock()
	if d == w.reported {
		return
	}
	attrs := []slog.Attr{
		slog.Int64("folded", d.Folded-w.reported.Folded), slog.Int64("fires", d.Fires-w.reported.Fires),
		slog.Int64("runs", d.Runs-w.reported.Runs), slog.Int64("failures", d.Failures-w.reported.Failures),
		slog.Int64("refused", d.Refused-w.reported.Refused), slog.Int64("log_lines", d.LogLines-w.reported.LogLines), slog.Int("waiting", waiting),
	}
	if w.failing != nil {
		attrs = append(attrs, slog.Any("error", w.failing))
	}
	w.reported, w.reportedAt = d, time.Now()
	w.log.LogAttrs(context.Background(), slog.LevelWarn, "history records dropped", attrs...)
}

// logLost logs at the end how many records were not written.
func (w *writer) logLost() {
	w.loseAllLogs()
	w.reportedAt = time.Time{}
	w.reportDropped()
	w.mu.Lock()
	left := w.pending.size() + len(w.flight)
	w.mu.Unlock()
	if left > 0 {
		w.log.Warn("history records not written before the end", slog.Int("records", left), slog.Any("error", w.failing))
	}
}
