package simulate

import (
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
)

// functions is the runs' own log. Handlers write to it, the observer reads it.
type functions struct {
	mu  sync.Mutex
	log []functionEvent
}

// function is one call of a handler.
type function struct {
	*executor.Run
	client  string
	start   time.Time
	end     time.Time // zero: it has not returned
	told    time.Time // when its context ended; zero: before end it did not
	overlap []*function
}

// functionEvent is the beginning of a function, or its end.
type functionEvent struct {
	*function
	end, told time.Time // zero end: the beginning
}

// begin takes note that a handler was called.
func (l *functions) begin(client string, r *executor.Run) *function {
	f := &function{Run: r, client: client, start: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, functionEvent{function: f})
	return f
}

// end takes note that it returns, and when its context ended if that was before.
func (l *functions) end(f *function, told time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, functionEvent{f, time.Now(), told})
}

// take returns what has been logged since the last take.
func (l *functions) take() []functionEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.log
	l.log = nil
	return log
}

// functions judges what the runs said of themselves. Their claims are known already.
func (o *Observer) functions(log []functionEvent) {
	for _, e := range log {
		j := o.job(e.Job)
		sh := j.shard(e.Shard)
		if e.end.IsZero() {
			o.now = e.start
			o.started(j, sh, e.function)
			continue
		}
		o.now, e.function.end, e.function.told = e.end, e.end, e.told
		sh.active = slices.DeleteFunc(sh.active, func(f *function) bool { return f == e.function })
		o.overlaps(j, sh, e.function)
	}
}

func (f *function) run() run {
	r := run{Trigger: f.Trigger, Attempt: f.Attempt}
	if f.Trigger == 0 {
		r.Fire = instantOf(f.FireTime)
	}
	return r
}

func (o *Observer) started(j *jobState, sh *shardState, f *function) {
	o.report.Functions++
	r := f.run()
	c := sh.attempts[attempt{r.work(), r.Attempt}]
	switch {
	case c == nil:
		o.violate(1, j, "shard %d: %s began %s without a claim", f.Shard, f.Instance, r)
	case c.started:
		o.violate(1, j, "shard %d: %s began %s, which has begun before", f.Shard, f.Instance, r)
	case c.fence != f.Fence || nameOf(c.incarnation) != f.Instance:
		o.violate(6, j, "shard %d: %s began %s with fence %d; %s claimed it with %d",
			f.Shard, f.Instance, r, f.Fence, c.incarnation, c.fence)
	default:
		c.started = true
	}
	if w := j.works[r.work()]; w != nil && w.total != f.Shards {
		o.violate(8, j, "shard %d: %s has %d shards, its run was told %d", f.Shard, r, w.total, f.Shards)
	}
	for _, earlier := range sh.active {
		if earlier.Fence > f.Fence {
			o.violate(6, j, "shard %d: %s began with fence %d after one with %d", f.Shard, r, f.Fence, earlier.Fence)
		}
		if earlier.client == f.client {
			o.violate(1, j, "shard %d: %s began %s while it still ran %s", f.Shard, f.client, r, earlier.run())
		}
		earlier.overlap = append(earlier.overlap, f)
	}
	sh.active = append(sh.active, f)
}

// overlaps judges the functions that began while f, which has returned, had not.
func (o *Observer) overlaps(j *jobState, sh *shardState, f *function) {
	for _, later := range f.overlap {
		if !later.start.Before(f.end) {
			continue // in the same moment
		}
		if !f.told.IsZero() && !f.told.After(later.start) {
			o.report.Overlaps++ // it took its time
			continue
		}
		if c := sh.attempts[attempt{f.run().work(), f.Attempt}]; c != nil && c.session.forced {
			o.report.ForcedOverlaps++
			continue
		}
		o.violate(1, j, "shard %d: %s of %s ran until %v, its context ended %v, and %s of %s began at %v",
			f.Shard, f.run(), f.client, clock(f.end), clock(f.told), later.run(), later.client, clock(later.start))
	}
	f.overlap = nil
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("15:04:05.000")
}
