package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// load is the work of several machines during a fault: each holds a session with an owned
// key, creates keys and makes plain reads; one watches the keys of another.
type load struct {
	t       *test
	workers []*worker
	stops   []func()
	follow  *follower
}

// worker is the work of one machine. Its fields may be read once it has stopped.
type worker struct {
	machine string
	reg     registry.Registry
	session registry.Session
	owned   registry.Cond // its owned key is unchanged

	results map[registry.Key]error // the result of each creation
	count   int
	done    chan struct{} // receives after a successful creation unless full
}

// pace is the pause between two rounds of a worker.
const pace = 20 * time.Millisecond

// counter is a key that a worker writes and all of them read.
const counter registry.Key = "counter"

func (t *test) startLoad(machines ...string) *load {
	t.Helper()
	l := &load{t: t}
	t.create(t.handle(machines[0]), counter, "0")
	for _, machine := range machines {
		r := t.handle(machine)
		w := &worker{
			machine: machine, reg: r, session: t.longSession(r),
			results: map[registry.Key]error{}, done: make(chan struct{}, 1),
		}
		key := registry.Key("owned/~" + machine)
		w.owned = registry.At(key, t.createOwned(r, key, w.session))
		l.workers = append(l.workers, w)
	}
	l.follow = t.follow(l.workers[1].reg, l.workers[0].dir())
	for i, w := range l.workers {
		l.stops = append(l.stops, t.spawn(w.createKeys))
		l.stops = append(l.stops, t.spawn(w.readCounter))
		if i == 0 {
			l.stops = append(l.stops, t.spawn(w.writeCounter))
		}
	}
	l.awaitProgress()
	return l
}

func (l *load) stop() {
	for _, stop := range l.stops {
		stop()
	}
}

func (w *worker) dir() registry.Key { return registry.Join("load", w.machine) }

// createKeys creates keys one after the other and records each result.
func (w *worker) createKeys(ctx context.Context) error {
	for ctx.Err() == nil {
		key := w.dir().Join(fmt.Sprintf("%05d", w.count))
		w.count++
		// Not ctx: a canceled transaction could be applied after the case has ended.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, err := w.reg.Txn(within, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		cancel()
		w.results[key] = err
		if err == nil {
			select {
			case w.done <- struct{}{}:
			default:
			}
		} else if problem := checkUnanswered(err); problem != nil {
			return fmt.Errorf("create %s: %w", key, problem)
		}
		time.Sleep(pace)
	}
	return nil
}

// readCounter makes plain reads and returns an error if one is older than an earlier one.
func (w *worker) readCounter(ctx context.Context) error {
	newest := uint64(0)
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, time.Second)
		e, err := w.reg.Get(within, counter, registry.ReadOptions{})
		cancel()
		switch {
		case errors.Is(err, registry.ErrNotFound) && newest > 0 || err == nil && e.Modified.Seq < newest:
			return fmt.Errorf("plain reads of %s went back from %d to %d (%v)", w.machine, newest, e.Modified.Seq, err)
		case err == nil:
			newest = e.Modified.Seq
		}
		time.Sleep(pace / 4)
	}
	return nil
}

func (w *worker) writeCounter(ctx context.Context) error {
	for i := 1; ctx.Err() == nil; i++ {
		within, cancel := context.WithTimeout(ctx, time.Second)
		if e, err := w.reg.Get(within, counter, fresh); err == nil {
			_, _ = w.reg.Txn(within, registry.Txn{Then: []registry.Op{registry.Set(counter, e.Modified, []byte(strconv.Itoa(i)))}})
		}
		cancel()
		time.Sleep(pace)
	}
	return nil
}

// awaitProgress waits until each worker has committed a transaction that began after the
// call.
func (l *load) awaitProgress() {
	l.t.Helper()
	bound := time.After(l.t.withSlack(2 * recovery))
	for _, w := range l.workers {
		for range 3 { // the first may be an old signal, the second a transaction in flight
			select {
			case <-w.done:
			case <-bound:
				l.t.Fatalf("%s commits nothing in time", w.machine)
			}
		}
	}
}

// assertSessionsLive fails the case unless all sessions become connected in time and keep
// their keys.
func (l *load) assertSessionsLive() {
	l.t.Helper()
	for _, w := range l.workers {
		l.t.eventually(recovery, "the session of "+w.machine+" is connected", func() error {
			return inState(w.session, registry.SessionConnected)
		})
		l.t.assertHolds(w.reg, registry.Alive(w.session.ID()), w.owned)
	}
}

// assertLossesReported fails the case if a session reports that it lives after it has
// ended.
func (l *load) assertLossesReported() {
	l.t.Helper()
	for _, w := range l.workers {
		if inState(w.session, registry.SessionLost) == nil {
			require.ErrorIs(l.t, w.session.Err(), registry.ErrSessionLost)
			continue
		}
		_, err := w.reg.Txn(l.t.ctx, registry.Txn{If: []registry.Cond{registry.Alive(w.session.ID()), w.owned}})
		if err != nil {
			require.NoError(l.t, inState(w.session, registry.SessionLost), "the session of %s has ended: %v", w.machine, err)
		}
	}
}

// assertOutcomesTrue compares the result of each creation with a list by another machine.
func (l *load) assertOutcomesTrue() {
	l.t.Helper()
	for i, w := range l.workers {
		other := l.workers[(i+1)%len(l.workers)]
		there := map[registry.Key]bool{}
		for _, e := range l.t.listFresh(other.reg, w.dir()) {
			there[e.Key] = true
		}
		count := map[string]int{}
		for key, err := range w.results {
			switch {
			case err == nil:
				count["applied"]++
				require.True(l.t, there[key], "%s was reported as applied", key)
			case errors.Is(err, registry.ErrNotApplied):
				count["not applied"]++
				require.False(l.t, there[key], "%s was reported as not applied: %v", key, err)
			default:
				count["unknown"]++
			}
		}
		l.t.Logf("%s: %v", w.machine, count)
	}
}

// underLoad injects a fault while several machines work and checks the results. The fault
// may last longer than a session's TTL: without keepsSessions sessions may expire,
// provided that their owners notice.
func (t *test) underLoad(suffer func(*load), keepsSessions bool) {
	t.Helper()
	l := t.startLoad("a", "b", "c")
	suffer(l)
	for _, w := range l.workers {
		t.awaitUsable(w.reg)
	}
	l.awaitProgress()
	if keepsSessions {
		l.assertSessionsLive()
	}
	l.stop()
	l.assertLossesReported()
	l.assertOutcomesTrue()
	l.follow.converge(l.workers[2].reg)
}
