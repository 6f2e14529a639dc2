package history

import (
	"context"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/internal/contain"
)

const (
	// logTimeout bounds a call of LogSink.WriteLogs. Records wait for it.
	logTimeout = 5 * time.Second
	// refusedLog is for how long the write of one piece alone fails until it is dropped. The sink may be away: that few lines are
	// lost then is better than that a piece which the sink refuses holds up the others.
	refusedLog = 30 * time.Second
)

// writeLogs writes pieces that are due, one batch of them. It returns when it has to be called next, zero if there is nothing to
// write. It does not wait after a failure, as records may be due. At the end a failure drops the remaining pieces.
func (w *writer) writeLogs(ctx context.Context, closing bool) (next time.Time) {
	if w.logs == nil {
		return time.Time{}
	}
	now := time.Now()
	if now.Before(w.logRetryAt) && !closing {
		return w.logRetryAt
	}
	if len(w.logFlight) == 0 {
		if w.logFlight, next = w.logs.take(now, logBatch, closing); len(w.logFlight) == 0 {
			return next
		}
	}
	n := min(w.logSize, len(w.logFlight))
	err := w.callWriteLogs(ctx, w.logFlight[:n])
	if err == nil {
		w.mu.Lock()
		w.pieces += int64(n)
		w.mu.Unlock()
		w.dropLogs(n)
		w.logSize, w.logPause, w.logRetryAt, w.logAlone = min(w.logSize*shrink, logBatch), firstPause, time.Time{}, time.Time{}
		if w.logFailing != nil {
			w.log.Info("logs of runs are written again")
			w.logFailing = nil
		}
		return time.Now()
	}
	if w.logFailing == nil {
		w.log.Warn("logs of runs not written: retrying", slog.Any("error", err))
	}
	w.logFailing = err
	switch {
	case closing:
		w.loseLogs(len(w.logFlight))
	case n > 1:
	case w.logAlone.IsZero():
		w.logAlone = now
	case now.Sub(w.logAlone) >= refusedLog:
		w.logAlone = time.Time{}
		w.loseLogs(1)
	}
	w.logSize = max(1, n/shrink)
	w.logRetryAt = time.Now().Add(w.logPause)
	w.logPause = min(2*w.logPause, longestPause)
	return w.logRetryAt
}

func (w *writer) callWriteLogs(ctx context.Context, taken []takenLog) error {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	pieces := make([]Log, len(taken))
	now := roundTime(time.Now())
	for i := range taken {
		pieces[i] = taken[i].Log
		pieces[i].Written = now
	}
	return contain.CallApart("Sink.WriteLogs", func() error { return w.sink.(LogSink).WriteLogs(ctx, pieces) })
}

// dropLogs forgets the first n pieces that were to be written.
func (w *writer) dropLogs(n int) {
	for i := range w.logFlight[:n] {
		w.logs.pool.release(w.logFlight[i].reserved)
	}
	rest := copy(w.logFlight, w.logFlight[n:])
	clear(w.logFlight[rest:])
	w.logFlight = w.logFlight[:rest]
}

// loseLogs drops the first n pieces, and counts their lines.
func (w *writer) loseLogs(n int) {
	for i := range w.logFlight[:n] {
		w.logs.countLost(int64(w.logFlight[i].Lines), int64(len(w.logFlight[i].Text)))
	}
	w.dropLogs(n)
}

// loseAllLogs drops all lines that are not written at the end.
func (w *writer) loseAllLogs() {
	for w.logs != nil {
		w.loseLogs(len(w.logFlight))
		if w.logFlight, _ = w.logs.take(time.Now(), logBatch, true); len(w.logFlight) == 0 {
			return
		}
	}
}
