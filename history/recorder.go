package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/mutex"
)

// ErrNotWritten is returned by Recorder.Shutdown if records are lost because the sink did not store them in time.
var ErrNotWritten = errors.New("history: records not written")

// Options are the settings of a Recorder. The zero value of each field is a default.
type Options struct {
	// Namespace and Group are those of the fleet, for runs and fires that do not name them. An empty Group means "default".
	Namespace, Group string
	// Instance is the name of this process, for skipped and ended fires, whose events do not name one.
	Instance string
	// Keep is which runs have a record of their own. The default is KeepNotable.
	Keep Keep
	// Queue is how many records wait while the sink is slow or fails. Zero means 10,000. Each takes about 1 KiB, at
	// most 6 KiB.
	Queue int
	// Annotate changes the record of a run that Observer observes. Nil means that the record
	// is complete. It is called by the goroutine of the callbacks, and delays no run. If it panics, the record is kept
	// as it is then.
	Annotate func(e executor.RunEnded, r *Run)
	// Logs are the settings of the logs of runs, which a LogSink keeps.
	Logs LogOptions
	// Logger receives failures of the sink and counts of dropped records. Nil means slog.Default().
	Logger *slog.Logger
}

const (
	defaultQueue = 10_000
	// batchMost is how many records are written together.
	batchMost = 500
	// batchWait is how long a record waits for others.
	batchWait = time.Second
	// writeTimeout bounds a call of Sink.Write, after which the batch is written again.
	writeTimeout = 15 * time.Second
	// After a failure the pause begins at firstPause, and doubles up to longestPause.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// shrink is the factor by which a batch shrinks after a failure and grows after a success, in order to find a
	// record that the sink refuses.
	shrink = 4
	// refusals is how often a write of one record alone fails, while other writes succeed, until it is dropped.
	refusals = 3
	// reportEvery is the least time between two log lines about failures and dropped records.
	reportEvery = time.Minute
	// trimEvery is the mean time between two rounds of Trimmer.Trim, trimPause the pause between two calls of a round.
	trimEvery, trimPause = 10 * time.Minute, 50 * time.Millisecond
)

// Dropped counts records that were not stored.
type Dropped struct {
	// Folded counts records of successful runs that were dropped. Their fires count the runs.
	Folded int64
	// Fires counts dropped records of fires, and Runs the runs that were counted by those alone.
	Fires, Runs int64
	// Failures counts dropped records of runs that failed or crashed.
	Failures int64
	// Refused counts records that the sink refused while it stored others.
	Refused int64
	// LogLines and LogBytes count the lines that are missing in logs for lack of LogOptions.Memory or LogOptions.Fire, or since the
	// sink did not store them. Those that LogOptions.Run leaves out do not count.
	LogLines, LogBytes int64
}

func (d *Dropped) countFire(f *Fire) {
	d.Fires++
	d.Runs += f.Runs()
}

// Stats are counts since New.
type Stats struct {
	// Added counts the calls of Add.
	Added int64
	// Written counts the records that the sink stored.
	Written int64
	// Pending is the number of records that wait for the sink now.
	Pending int
	// LogPieces counts the pieces of logs that the sink stored, and LogWaiting is how many bytes of memory lines occupy that
	// wait for it now.
	LogPieces  int64
	LogWaiting int64
	// Dropped counts the records that were dropped.
	Dropped Dropped
}

// Recorder observes the ends of runs, and writes records of them to a Sink.
type Recorder struct {
	sink   Sink
	o      Options
	log    *slog.Logger
	wake   chan struct{} // one slot: the loop looks at pending again
	stop   context.CancelFunc
	closed chan struct{} // closed when the loop has returned
	logs   *logs         // nil if none are kept

	mu      mutex.Mutex
	pending *pending
	flight  []record // being written. Its content belongs to the loop
	closing bool
	added   int64
	written int64
	late    int64 // runs added after Shutdown
	pieces  int64 // of logs, written
}

// errNoSink is the error of each write to a Sink that is nil.
var errNoSink = errors.New("the Sink passed to history.New is nil")

// New returns a Recorder that writes to sink until Shutdown. A panic of sink counts as an error: the records are
// written again. If sink is nil, each write fails, which is logged.
func New(sink Sink, o Options) *Recorder {
	o.Group = cmp.Or(o.Group, "default")
	if o.Queue <= 0 {
		o.Queue = defaultQueue
	}
	if sink == nil {
		sink = SinkFunc(func(context.Context, Batch) error { return errNoSink })
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{
		sink: sink, o: o, log: contain.Logger(o.Logger).With("component", "history"), wake: make(chan struct{}, 1), stop: stop, closed: make(chan struct{}),
		// Two recorders of one instance, such as those before and after a restart, must not use one part.
		pending: newPending(o.Queue, o.Keep, batchWait, rand.Uint64()>>2),
	}
	if _, ok := sink.(LogSink); ok && o.Keep != KeepFires && !o.Logs.Off {
		r.logs = newLogs(o.Logs, o.Namespace, o.Group, r.wakeLoop)
	}
	go r.loop(ctx)
	return r
}

// Add records a run that has ended. It does not block, may be called at the same time from several goroutines, and
// keeps no reference to the caller's memory but the texts. After Shutdown it counts the run as dropped.
func (r *Recorder) Add(run Run) {
	run.Namespace, run.Group = cmp.Or(run.Namespace, r.o.Namespace), cmp.Or(run.Group, r.o.Group)
	if run.Ended.IsZero() {
		run.Ended = time.Now()
	}
	if run.Fire.IsZero() {
		run.Fire = run.Ended
	}
	run = run.normalize()
	r.change(func(now time.Time) { r.pending.addRun(run, now) })
}

// AddSkipped records that shards of a fire, or of several, were skipped: Skipped is their number, SkippedFrom the first fire
// of several, SkippedBy has the reasons, and only these and the key count. Like Add it does not block.
func (r *Recorder) AddSkipped(f Fire) {
	r.addFire(Fire{
		Namespace: f.Namespace, Group: f.Group, Job: f.Job, Fire: f.Fire, Trigger: f.Trigger, Instance: f.Instance,
		Shards: f.Shards, Skipped: f.Skipped, SkippedFrom: f.SkippedFrom, SkippedBy: f.SkippedBy,
	})
}

// AddEnded records that a fire has ended in the whole fleet: only Ended, FailedShards, SkippedShards, Shards and the key count.
// Calls for one fire, also of several instances, add up to the outcome of one. Like Add it does not block.
func (r *Recorder) AddEnded(f Fire) {
	r.addFire(Fire{
		Namespace: f.Namespace, Group: f.Group, Job: f.Job, Fire: f.Fire, Trigger: f.Trigger, Instance: f.Instance,
		Shards: f.Shards, Ended: f.Ended, FailedShards: f.FailedShards, SkippedShards: f.SkippedShards,
	})
}

func (r *Recorder) addFire(f Fire) {
	f.Namespace, f.Group = cmp.Or(f.Namespace, r.o.Namespace), cmp.Or(f.Group, r.o.Group)
	f = f.normalize()
	if f.Fire.IsZero() {
		f.Fire = roundTime(time.Now())
	}
	r.change(func(now time.Time) { r.pending.addFire(f, now) })
}

// change calls add under the lock, and wakes the loop if it has more to do than it knows.
func (r *Recorder) change(add func(now time.Time)) {
	now := time.Now()
	r.mu.Lock()
	r.added++
	if r.closing {
		r.late++
		r.mu.Unlock()
		return
	}
	empty, crowded := r.pending.size() == 0, r.pending.isCrowded()
	add(now)
	wake := empty || !crowded && r.pending.isCrowded()
	r.mu.Unlock()
	if wake {
		r.wakeLoop()
	}
}

func (r *Recorder) wakeLoop() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Stats returns counts since New.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{Added: r.added, Written: r.written, Pending: r.pending.size() + len(r.flight), Dropped: r.droppedLocked(), LogPieces: r.pieces}
	if r.logs != nil {
		s.LogWaiting = r.logs.pool.used.Load()
	}
	return s
}

func (r *Recorder) droppedLocked() Dropped {
	d := r.pending.dropped
	d.Runs += r.late
	if r.logs != nil {
		d.LogLines, d.LogBytes = r.logs.countedLost()
	}
	return d
}

// Shutdown writes the pending records and ends the Recorder. If ctx ends before, the records that are left are
// dropped, and Shutdown returns an error that wraps ErrNotWritten. Call it after the executor has ended. Further calls
// wait for the first one.
func (r *Recorder) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.wakeLoop()
	select {
	case <-r.closed:
	case <-ctx.Done():
	}
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := r.pending.size() + len(r.flight); left > 0 {
		return fmt.Errorf("%w: %d: %w", ErrNotWritten, left, context.Cause(ctx))
	}
	return nil
}
