package executor

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/mutex"
)

const (
	// maxWaitingEvents bounds the events that wait for callbacks.
	maxWaitingEvents = 10_000
	// deliveryTimeout bounds the wait of a shutdown for the callbacks.
	deliveryTimeout = time.Second
	// observerLogInterval is the minimum time between two lines about dropped events, and
	// between two lines about panics of callbacks.
	observerLogInterval = time.Minute
)

// observers delivers events to observers. Events wait in a queue. A goroutine delivers them,
// and ends when there are none.
type observers struct {
	log     *slog.Logger
	all     atomic.Pointer[[]Observer] // nil: none
	dropped atomic.Uint64

	mu         mutex.Mutex
	queue      chan delivery // nil without observers
	delivering bool          // there is a goroutine that delivers
	idle       chan struct{} // closed when that goroutine ends; nil without a caller of close
	closed     bool          // later events are ignored
	drops      occasions
	panics     occasions
}

// delivery calls the callback of an observer for an event, if it has one.
type delivery func(*Observer)

// occasions counts what is logged once per interval.
type occasions struct {
	logged time.Time
	since  int // occasions that were not logged
}

// next counts one more, and reports whether to log the count now.
func (o *occasions) next(now time.Time) (count int, log bool) {
	if o.since++; !o.logged.IsZero() && now.Sub(o.logged) < observerLogInterval {
		return 0, false
	}
	count, o.since, o.logged = o.since, 0, now
	return count, true
}

// add adds an observer.
func (q *observers) add(o Observer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []Observer
	if old := q.all.Load(); old != nil {
		all = slices.Clone(*old)
	} else {
		q.queue = make(chan delivery, maxWaitingEvents)
	}
	all = append(all, o)
	q.all.Store(&all)
}

// observes reports whether an observer has a certain callback.
func (q *observers) observes(has func(*Observer) bool) bool {
	all := q.all.Load()
	if all == nil {
		return false
	}
	for i := range *all {
		if has(&(*all)[i]) {
			return true
		}
	}
	return false
}

// runLogs returns the handlers that observers have for the log of a run.
func (q *observers) runLogs(info func() RunInfo) (handlers []slog.Handler) {
	if !q.observes(func(o *Observer) bool { return o.RunLog != nil }) {
		return nil
	}
	run := info()
	for _, o := range *q.all.Load() {
		if o.RunLog == nil {
			continue
		}
		var h slog.Handler
		q.call(func(o *Observer) { h = o.RunLog(run) }, &o)
		if h != nil {
			handlers = append(handlers, contain.Logger(slog.New(h)).Handler())
		}
	}
	return handlers
}

// isEmpty reports whether there are no observers.
func (q *observers) isEmpty() bool { return q.all.Load() == nil }

// push queues an event. It does not block.
func (q *observers) push(d delivery) {
	if drops, log := q.pushOrCount(d); log {
		q.logDrops(drops)
	}
}

// pushOrCount queues an event, or counts it as dropped and reports whether to log drops now.
func (q *observers) pushOrCount(d delivery) (drops int, log bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.queue == nil {
		return 0, false
	}
	select {
	case q.queue <- d:
	default:
		q.dropped.Add(1)
		return q.drops.next(time.Now())
	}
	if !q.delivering {
		q.delivering = true
		go q.deliver()
	}
	return 0, false
}

func (q *observers) logDrops(n int) {
	q.log.Warn("events dropped: the callbacks of observers are too slow", "events", n, "waiting", maxWaitingEvents,
		"remedy", "have the callbacks return at once")
}

// deliver calls the callbacks for all queued events.
func (q *observers) deliver() {
	done := false
	defer func() {
		if !done {
			go q.deliver() // a callback has called Goexit, and this goroutine ends
		}
	}()
	for {
		d, ok := q.next()
		if !ok {
			done = true
			return
		}
		for i, all := 0, *q.all.Load(); i < len(all); i++ {
			q.call(d, &all[i])
		}
	}
}

// next returns the next event. If there is none, the caller must stop delivering.
func (q *observers) next() (d delivery, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case d := <-q.queue:
		return d, true
	default:
	}
	if q.delivering = false; q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return nil, false
}

// call calls a callback, and logs its panic.
func (q *observers) call(d delivery, o *Observer) {
	defer func() {
		if v := recover(); v != nil {
			q.logPanic(contain.TextOf(v), debug.Stack())
		}
	}()
	mutex.CheckFree("an observer")
	d(o)
}

// logPanic logs the panic of a callback, or counts it.
func (q *observers) logPanic(text string, stack []byte) {
	q.mu.Lock()
	n, log := q.panics.next(time.Now())
	q.mu.Unlock()
	if log {
		q.log.Error("callback of an observer panicked", "panics", n, "last", text, "stack", string(stack))
	}
}

// close delivers the queued events, for up to deliveryTimeout, and drops the rest. Later events
// are ignored.
func (q *observers) close() {
	q.mu.Lock()
	q.closed = true
	var idle chan struct{}
	if q.delivering {
		if q.idle == nil {
			q.idle = make(chan struct{})
		}
		idle = q.idle
	}
	q.mu.Unlock()
	if idle != nil {
		waitFor(context.Background(), deliveryTimeout, idle)
	}
	if n := q.dropRest(); n > 0 {
		q.logDrops(n)
	}
}

// dropRest drops the queued events, and returns how many drops are not logged.
func (q *observers) dropRest() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	rest := len(q.queue)
	for range rest {
		<-q.queue
	}
	q.dropped.Add(uint64(rest))
	rest += q.drops.since
	q.drops.since = 0
	return rest
}

// waitFor waits until done is closed, ctx ends or d has passed.
func waitFor(ctx context.Context, d time.Duration, done <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-ctx.Done():
	case <-t.C:
	}
}
