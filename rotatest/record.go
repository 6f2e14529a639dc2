package rotatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/shardset"
)

// Record describes a call of a handler.
type Record struct {
	executor.Run // the handler's argument

	Start time.Time // when the handler was called
	End   time.Time // when it returned; zero while it runs
	Err   error     // the handler's result; an *executor.PanicError if it panicked
}

// String returns the record in one line: the run, when its handler was called, for how long
// it ran, and its error.
func (r Record) String() string {
	if r.End.IsZero() {
		return fmt.Sprintf("%v at %s: running", r.Run, clock(r.Start))
	}
	result := "ok"
	if r.Err != nil {
		result = "error: " + strings.ReplaceAll(r.Err.Error(), "\n", "; ")
	}
	return fmt.Sprintf("%v at %s for %v: %s", r.Run, clock(r.Start), r.End.Sub(r.Start), result)
}

// Runs returns the calls of a job's handlers on all instances, in the order of start, fire,
// shard and attempt. Runs that were claimed and never reached a handler are not included.
func (f *Fleet) Runs(job string) []Record {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	var out []Record
	for _, c := range f.recorder.calls {
		if c.Job == job {
			out = append(out, c.Record)
		}
	}
	slices.SortStableFunc(out, func(a, b Record) int { return a.compare(&b) })
	return out
}

func (r *Record) compare(o *Record) int {
	return cmp.Or(r.Start.Compare(o.Start), r.FireTime.Compare(o.FireTime),
		cmp.Compare(r.Shard, o.Shard), cmp.Compare(r.Attempt, o.Attempt))
}

// recorder records the runs of a fleet.
type recorder struct {
	t reporter

	mu    sync.Mutex
	calls []*call         // in order of start
	open  []*call         // those that have not ended
	made  map[string]bool // Run.ID of all calls
	twice []*call         // those with the Run.ID of an earlier one
}

// call is a call of a handler.
type call struct {
	Record
	ctx     context.Context
	process *process
}

func (r *recorder) begin(ctx context.Context, p *process, run executor.Run) *call {
	c := &call{Record{Run: run, Start: time.Now()}, ctx, p}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made[c.ID] {
		r.recordAgain(c)
	}
	r.made[c.ID] = true
	for _, o := range r.open {
		if o.Job == c.Job && o.Shard == c.Shard && o.ctx.Err() == nil {
			r.t.Errorf("rotatest: run %s began on %s at %s while run %s, on %s since %s, had not ended",
				c.ID, p.instance, clock(c.Start), o.ID, o.process.instance, clock(o.Start))
		}
	}
	r.calls = append(r.calls, c)
	r.open = append(r.open, c)
	return c
}

func (r *recorder) end(c *call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.End, c.Err = time.Now(), err
	r.open = slices.DeleteFunc(r.open, func(o *call) bool { return o == c })
}

// recordAgain records a call with the ID of an earlier one. If the fence is equal as well, it is
// a second call for one claim. The caller holds r.mu.
func (r *recorder) recordAgain(c *call) {
	if slices.ContainsFunc(r.calls, func(o *call) bool { return o.ID == c.ID && o.Fence == c.Fence }) {
		r.t.Errorf("rotatest: run %s began a second time, on %s at %s", c.ID, c.process.instance, clock(c.Start))
		return
	}
	r.twice = append(r.twice, c)
}

// reportDoubled reports the runs that began a second time, except for jobs that were reset: for
// these, the audit checks that the claims are of different epochs.
func (r *recorder) reportDoubled(reset func(job string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.twice {
		if !reset(c.Job) {
			r.t.Errorf("rotatest: run %s began a second time, on %s at %s", c.ID, c.process.instance, clock(c.Start))
		}
	}
}

// running returns the calls that have not ended, in the order of Runs: those of zombies in
// crashed processes only if asked for.
func (r *recorder) running(zombies bool) []*call {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.DeleteFunc(slices.Clone(r.open), func(c *call) bool {
		return !zombies && c.process.state == crashed
	})
	slices.SortStableFunc(out, func(a, b *call) int { return a.compare(&b.Record) })
	return out
}

// begun reports whether the handlers of all these runs have been called.
func (r *recorder) allBegun(ids []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if !r.made[id] {
			return false
		}
	}
	return true
}

// returned reports whether the handler of a run has been called and has returned.
func (r *recorder) returned(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[id] && !slices.ContainsFunc(r.open, func(c *call) bool { return c.ID == id })
}

// busy returns the shards of a job that have a handler running in a live process.
func (r *recorder) busyShards(job string) shardset.Set {
	var busy shardset.Set
	for _, c := range r.running(false) {
		if c.Job == job {
			busy.Add(c.Shard)
		}
	}
	return busy
}

// recordedHandler is a handler within its middleware, in a process. Each call is recorded.
type recordedHandler struct {
	recorder *recorder
	process  *process
	handler  executor.Handler
}

// Handle calls the handler with a context that ends with the process, too.
func (h *recordedHandler) Handle(ctx context.Context, r *executor.Run) (err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(h.process.life, func() { end(context.Cause(h.process.life)) })
	defer stop()

	c := h.recorder.begin(ctx, h.process, *r)
	err = errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = &executor.PanicError{Value: v, Stack: debug.Stack()} // as the executor would
		}
		h.recorder.end(c, err)
	}()
	return h.handler.Handle(ctx, r)
}

// errGoexit is the error of a handler that ended its goroutine instead of returning.
var errGoexit = errors.New("handler called runtime.Goexit, as t.FailNow does")

// clock is how times are written in messages.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999") }
