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

// load is what several machines do while their store suffers: each holds a session with a
// key, creates keys, and makes plain reads; one follows what the others write.
type load struct {
	t       *test
	workers []*worker
	stops   []func()
	follow  *follower
}

// worker is what one machine does. Its fields are read when it has stopped.
type worker struct {
	machine string
	reg     registry.Registry
	session registry.Session
	owned   registry.Cond // that its key is as it made it

	said  map[registry.Key]error // what came of each creation
	count int
	done  chan struct{} // a slot for each creation that succeeded, while there is room
}

// pace is the time between two rounds of a worker.
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
			said: map[registry.Key]error{}, done: make(chan struct{}, 1),
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

// createKeys creates one key after the other, and remembers what was said of each.
func (w *worker) createKeys(ctx context.Context) error {
	for ctx.Err() == nil {
		key := w.dir().Join(fmt.Sprintf("%05d", w.count))
		w.count++
		// Not ctx: a transaction that is cut short may be applied after all is over.
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, err := w.reg.Txn(within, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
		cancel()
		w.said[key] = err
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

// readCounter makes plain reads, and tells when one is older than one before.
func (w *worker) readCounter(ctx context.Context) error {
	newest := uint64(0)
	for ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, time.Second)
		e, err := w.reg.Get(within, counter, registry.ReadOptions{})
		cancel()
		switch {
		case errors.Is(err, registry.ErrNotFound) && newest > 0 || err == nil && e.Modified.Seq < newest:
			return fmt.Errorf("a plain read of %s went back in time: from %d to %d (%v)", w.machine, newest, e.Modified.Seq, err)
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

// awaitProgress waits until each worker has committed something that it had not begun before.
func (l *load) awaitProgress() {
	l.t.Helper()
	bound := time.After(l.t.withSlack(2 * recovery))
	for _, w := range l.workers {
		for range 3 { // the first may have been waiting, the second on its way
			select {
			case <-w.done:
			case <-bound:
				l.t.Fatalf("%s commits nothing", w.machine)
			}
		}
	}
}

// assertSessionsLive fails the case unless all sessions are connected, or will be.
func (l *load) assertSessionsLive() {
	l.t.Helper()
	for _, w := range l.workers {
		l.t.eventually(recovery, "the session of "+w.machine+" is connected", func() error {
			return inState(w.session, registry.SessionConnected)
		})
		l.t.assertHolds(w.reg, registry.Alive(w.session.ID()), w.owned)
	}
}

// assertLossesReported fails the case if a session takes itself for alive and is not.
func (l *load) assertLossesReported() {
	l.t.Helper()
	for _, w := range l.workers {
		if inState(w.session, registry.SessionLost) == nil {
			require.ErrorIs(l.t, w.session.Err(), registry.ErrSessionLost)
			continue
		}
		_, err := w.reg.Txn(l.t.ctx, registry.Txn{If: []registry.Cond{registry.Alive(w.session.ID()), w.owned}})
		if err != nil {
			require.NoError(l.t, inState(w.session, registry.SessionLost), "the session of %s is over: %v", w.machine, err)
		}
	}
}

// assertOutcomesTrue compares what was said of each creation with what another machine finds.
func (l *load) assertOutcomesTrue() {
	l.t.Helper()
	for i, w := range l.workers {
		other := l.workers[(i+1)%len(l.workers)]
		there := map[registry.Key]bool{}
		for _, e := range l.t.listFresh(other.reg, w.dir()) {
			there[e.Key] = true
		}
		count := map[string]int{}
		for key, err := range w.said {
			switch {
			case err == nil:
				count["applied"]++
				require.True(l.t, there[key], "%s was said to be applied", key)
			case errors.Is(err, registry.ErrNotApplied):
				count["not applied"]++
				require.False(l.t, there[key], "%s was said not to be applied: %v", key, err)
			default:
				count["unknown"]++
			}
		}
		l.t.Logf("%s: %v", w.machine, count)
	}
}

// underLoad has the store suffer while several machines work, and looks at what came of
// it. What it suffers may take a session's TTL and more; unless they are told to be kept,
// sessions may end of that, but not unnoticed.
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
