package history

import (
	"cmp"
	"container/list"
	"errors"
	"log/slog"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/heap"
	"github.com/rota-dev/rota/internal/mutex"
)

// LogOptions are the settings of the logs of runs. The zero value of each field is a default. Lines that a bound leaves out of
// the middle of a log, or of its end, are counted in the log itself.
type LogOptions struct {
	// Off keeps no logs. So do KeepFires, and a Sink that is not a LogSink.
	Off bool
	// Run bounds the log of a run, in bytes: half of it for its begin, half for its end. Zero means 64 KiB, and less
	// than 4 KiB as much as that.
	Run int
	// Fire bounds the logs of the runs of a fire on this instance, in bytes that are kept: runs that log later have none. Zero means 4 MiB.
	Fire int
	// JobPerSecond bounds the writes to the logs of a job in a second, in bytes. Further lines wait, within Run and Memory.
	// Zero means 256 KiB, and less than 8 KiB as much as that.
	JobPerSecond int
	// Memory bounds the lines of all runs that wait to be written, in bytes. When it is full, the oldest lines of the end of
	// the same log are dropped, or the new one, and counted in Stats. Zero means 16 MiB.
	Memory int
	// Level is the least level of records of Run.Logger. Nil means slog.LevelInfo.
	Level slog.Leveler
	// Mask returns a text without secrets. It gets the text of each record and line before it is cut. It must be safe for
	// concurrent use, and return soon: runs wait for it. If it panics, the line is dropped. Nil means that no text is changed.
	Mask func(text string) string
	// Skip reports whether the output of a job is secret: its runs have no log, and no Run.Output. It must be safe for
	// concurrent use. Nil means that none is.
	Skip func(job string) bool
}

const (
	defaultLogRun, leastLogRun   = 64 << 10, 4 << 10
	defaultLogFire               = 4 << 20
	defaultLogRate, leastLogRate = 256 << 10, 8 << 10
	defaultLogMemory             = 16 << 20
	// logWait is how long a line waits for others.
	logWait = 800 * time.Millisecond
	// logBatch and logBatchBytes bound the pieces that are written together.
	logBatch, logBatchBytes = 200, 1 << 20
	// openLogs is the number of open logs beyond which no further one is opened.
	openLogs = 100_000
)

func (o LogOptions) withDefaults() LogOptions {
	o.Run = max(cmp.Or(o.Run, defaultLogRun), leastLogRun)
	o.Fire = cmp.Or(o.Fire, defaultLogFire)
	o.JobPerSecond = max(cmp.Or(o.JobPerSecond, defaultLogRate), leastLogRate)
	o.Memory = cmp.Or(o.Memory, defaultLogMemory)
	if o.Level == nil {
		o.Level = slog.LevelInfo
	}
	return o
}

// skips reports whether the output of a job is secret. It is if Skip panics.
func (o *LogOptions) skips(job string) bool {
	skip := true
	_ = contain.Call("Skip", func() error { skip = o.Skip != nil && o.Skip(job); return nil })
	return skip
}

// logs are the logs of the runs of a process.
type logs struct {
	o                LogOptions
	namespace, group string // of runs that do not name them
	wake             func() // the loop has more to do than it knows
	pool             logPool

	mu    mutex.Mutex
	open  map[runID]*runLog
	dirty heap.Heap[*runLog, byLogDue] // those with lines to write
	fires map[fireKey]*fireLogs
	order list.List // of *fireLogs, the one that was used least recently first
	rates map[string]*logRate
	lost  struct{ lines, bytes int64 }
}

type runID struct {
	id    string
	fence uint64
}

// fireLogs counts the bytes of the runs of a fire that were written and not replaced.
type fireLogs struct {
	key   fireKey
	used  int
	place *list.Element
}

// logRate counts the written bytes of the runs of a job in a second.
type logRate struct {
	began time.Time
	used  int
}

// runLog is the log of a run.
type runLog struct {
	all *logs
	of  Log // without the fields of a piece
	at  fireKey

	mu      mutex.Mutex
	buffer  logBuffer
	dirty   bool      // it is in the heap, or about to be
	due     time.Time // changes only while it is not in the heap
	place   int       // in the heap
	silent  bool      // the fire has no room: lines are only counted
	ended   bool      // further lines are ignored
	outcome Outcome
}

type byLogDue struct{}

func (byLogDue) Before(a, b *runLog) bool { return a.due.Before(b.due) }
func (byLogDue) Place(l *runLog) *int     { return &l.place }

func newLogs(o LogOptions, namespace, group string, wake func()) *logs {
	o = o.withDefaults()
	return &logs{
		o: o, namespace: namespace, group: group, wake: wake, pool: logPool{most: int64(o.Memory)},
		open: map[runID]*runLog{}, fires: map[fireKey]*fireLogs{}, rates: map[string]*logRate{},
	}
}

// handlerFor is executor.Observer.RunLog.
func (g *logs) handlerFor(i executor.RunInfo) slog.Handler {
	if g.o.skips(i.Job) {
		return nil
	}
	if l := g.openLog(i); l != nil {
		return &logHandler{log: l}
	}
	return nil
}

// openLog returns the log of a run, nil if there are too many.
func (g *logs) openLog(i executor.RunInfo) *runLog {
	id := runID{i.ID, i.Fence}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.open[id]; l != nil {
		return l
	}
	if len(g.open) >= openLogs {
		return nil
	}
	of := Log{
		Namespace: cmp.Or(i.Namespace, g.namespace), Group: cmp.Or(i.Group, g.group), Job: i.Job, Fire: i.FireTime, Trigger: i.Trigger,
		Run: i.ID, Instance: i.Instance, Fence: i.Fence, Shard: i.Shard, Attempt: i.Attempt,
	}.normalize()
	l := &runLog{all: g, of: of, at: fireKey{of.Namespace, of.Group, of.Job, of.Instance, of.Fire.UnixMicro(), of.Trigger}}
	l.buffer = logBuffer{pool: &g.pool, limit: g.o.Run}
	g.open[id] = l
	return l
}

// end records the end of a run. A panic adds its stack to the log, which is opened for it.
func (g *logs) end(e executor.RunEnded) {
	if panicked, ok := errors.AsType[*executor.PanicError](e.Err); ok && !g.o.skips(e.Run.Job) {
		if l := g.openLog(e.Run); l != nil {
			l.add(e.Ended, LogPanic, e.Err.Error()+"\n"+string(panicked.Stack), 0)
		}
	}
	id := runID{e.Run.ID, e.Run.Fence}
	g.mu.Lock()
	l := g.open[id]
	delete(g.open, id)
	g.mu.Unlock()
	if l != nil {
		l.end(e.Outcome)
	}
}

// countLost counts lines that are dropped.
func (g *logs) countLost(lines, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost.lines += lines
	g.lost.bytes += bytes
}

// countedLost returns how many lines and bytes were dropped.
func (g *logs) countedLost() (lines, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost.lines, g.lost.bytes
}

// enqueue adds a log to those with lines to write.
func (g *logs) enqueue(l *runLog) {
	g.mu.Lock()
	g.dirty.Push(l)
	first := g.dirty.First() == l
	g.mu.Unlock()
	if first {
		g.wake()
	}
}

// next removes the first log with lines to write, if it is due or all are. Otherwise it returns when that is, zero if there is none.
func (g *logs) next(now time.Time, all bool) (l *runLog, due time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dirty.Len() == 0 {
		return nil, time.Time{}
	}
	if l = g.dirty.First(); !all && l.due.After(now) {
		return nil, l.due
	}
	return g.dirty.Pop(), time.Time{}
}

// takenLog is a piece that was taken to be written.
type takenLog struct {
	Log
	reserved int // of the pool
}

// take removes lines that are due, as pieces of at most n, and logBatchBytes of text. It returns when the next ones are due.
func (g *logs) take(now time.Time, n int, all bool) (taken []takenLog, due time.Time) {
	bytes := 0
	for len(taken) < n && bytes < logBatchBytes {
		l, later := g.next(now, all)
		if l == nil {
			return taken, later
		}
		pieces := l.take(now, n-len(taken), all)
		for _, p := range pieces {
			bytes += len(p.Text)
		}
		taken = append(taken, pieces...)
	}
	return taken, now
}

// room returns how many bytes of a fire and its job may be written now. If the job has none left, it returns when it has.
func (g *logs) room(at fireKey, now time.Time, all bool) (fire, rate int, again time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.fires[at]
	if f == nil {
		f = &fireLogs{key: at}
		f.place = g.order.PushBack(f)
		g.fires[at] = f
		if g.order.Len() > knownFires {
			delete(g.fires, g.order.Remove(g.order.Front()).(*fireLogs).key)
		}
	}
	g.order.MoveToBack(f.place)
	r := g.rates[at.job]
	if r == nil {
		r = &logRate{}
		g.rates[at.job] = r
	}
	if now.Sub(r.began) >= time.Second || now.Before(r.began) {
		r.began, r.used = now, 0
	}
	if rate = g.o.JobPerSecond - r.used; all { // at the end, everything is written, within the other bounds
		rate = g.o.JobPerSecond
	}
	return g.o.Fire - f.used, rate, r.began.Add(time.Second)
}

// use counts a piece that is to be written, and those that it replaces: a run that prints without an end keeps its last lines.
func (g *logs) use(at fireKey, cost, replaced int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.fires[at]; f != nil {
		f.used = max(0, f.used+cost-replaced)
	}
	if r := g.rates[at.job]; r != nil {
		r.used += cost
	}
}

// add adds a text of one line or several. Cut is how many bytes it lacks.
func (l *runLog) add(at time.Time, kind, text string, cut int) {
	if mask := l.all.o.Mask; mask != nil && contain.Call("Mask", func() error { text = mask(text); return nil }) != nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	lines, bytes := l.addLocked(at, kind, text, cut)
	enqueue := !l.dirty && !l.ended && (len(l.buffer.head) > 0 || len(l.buffer.tail) > 0)
	if enqueue {
		l.dirty, l.due = true, now.Add(logWait)
	}
	l.mu.Unlock()
	if lines > 0 {
		l.all.countLost(lines, bytes)
	}
	if enqueue {
		l.all.enqueue(l)
	}
}

// end ends the log. Its remaining lines are written soon.
func (l *runLog) end(how Outcome) {
	l.mu.Lock()
	l.ended, l.outcome = true, how
	enqueue := !l.dirty && l.buffer.pieces > 0
	if enqueue {
		l.dirty, l.due = true, time.Now().Add(logWait)
	}
	l.mu.Unlock()
	if enqueue {
		l.all.enqueue(l)
	}
}

// take removes lines as pieces, and enqueues the log again if lines are left.
func (l *runLog) take(now time.Time, n int, all bool) (taken []takenLog) {
	var lost, lostBytes int64
	l.mu.Lock()
	again := false
	for len(taken) < n {
		if len(l.buffer.head)+len(l.buffer.tail) == 0 {
			break
		}
		fire, rate, next := l.all.room(l.at, now, all)
		p, reserved, replaced := l.buffer.take(min(fire, rate, MaxLogText) - logPieceCost)
		if p.Text == "" {
			if fire <= rate && fire < MaxLogText {
				l.silent = true
				lost, lostBytes = l.buffer.drop()
				break
			}
			l.due, again = next, true
			break
		}
		l.all.use(l.at, len(p.Text)+logPieceCost, replaced)
		taken = append(taken, l.piece(p, reserved))
	}
	empty := len(l.buffer.head)+len(l.buffer.tail) == 0
	again = again || !empty
	switch last := len(taken) - 1; {
	case !empty || !l.ended:
	case last >= 0 && taken[last].Line+int64(taken[last].Lines) == l.buffer.lines:
		taken[last].Outcome = l.outcome
	case l.buffer.pieces > 0 && len(taken) < n:
		taken = append(taken, l.piece(l.buffer.end(), 0))
		taken[len(taken)-1].Outcome = l.outcome
	case l.buffer.pieces > 0:
		again = true
	}
	l.dirty = again
	l.mu.Unlock()
	if lost > 0 {
		l.all.countLost(lost, lostBytes)
	}
	if again {
		l.all.enqueue(l)
	}
	return taken
}

// piece returns a piece with the fields of the run.
func (l *runLog) piece(p Log, reserved int) takenLog {
	piece := l.of
	piece.Piece, piece.Line, piece.Byte, piece.Lines, piece.Text, piece.Head, piece.From = p.Piece, p.Line, p.Byte, p.Lines, p.Text, p.Head, p.From
	return takenLog{piece, reserved}
}
