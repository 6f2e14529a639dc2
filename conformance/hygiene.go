package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var hygieneCases = []Case{
	{
		Code: "H01", Name: "no goroutine is left when Close returns",
		Proves: []Promise{CloseEndsGoroutines}, alone: true, run: noGoroutineLeft,
	},
	{
		Code: "H02", Name: "a closed handle returns ErrClosed and may be closed twice",
		Proves: []Promise{ClosedIsErrClosed, CloseIsLegalTwice}, run: closedHandle,
	},
	{
		Code: "H03", Name: "no goroutine runs before a handle is opened",
		Proves: []Promise{NothingRunsBeforeOpen}, alone: true, run: nothingAtInit,
	},
	{
		Code: "H04", Name: "Close wakes pending calls and watchers",
		Proves: []Promise{CloseEndsPendingCalls, OutcomesAreTrue}, Needs: []string{Partition}, run: closeWakes,
	},
	{
		Code: "H05", Name: "Close closes the sessions of the handle",
		Proves: []Promise{CloseClosesSessions}, run: closeEndsSessions,
	},
	{
		Code: "H06", Name: "Close of a disconnected handle returns when its context ends",
		Proves: []Promise{CloseReturnsByItsContext, CloseEndsGoroutines, CallsEndWithTheirContext}, Needs: []string{Partition}, alone: true, run: closeWhileUnreachable,
	},
	{
		Code: "H07", Name: "handles are independent of each other",
		Proves: []Promise{HandlesAreIndependent}, run: independentHandles,
	},
	{
		Code: "H08", Name: "a session or watch whose opening overlaps Close ends with the handle",
		Proves: []Promise{CloseClosesSessions, CloseEndsPendingCalls, OutcomesAreTrue}, run: openedDuringClose, Safety: true,
	},
	{
		Code: "H09", Name: "Close closes sessions that have ended for their owner and live at the store",
		Proves: []Promise{CloseClosesSessions, SessionCloseIsFinal}, Needs: []string{Partition, Starve}, run: closeEndsEverySession,
	},
	{
		Code: "H10", Name: "each of many handles of a process follows, reads and writes",
		Proves: []Promise{HandlesAreIndependent, WatchFollowsChanges}, run: manyHandles,
	},
}

func noGoroutineLeft(t *test) {
	t.settle(100 * time.Millisecond)
	before := goroutines(t)
	for range 2 {
		r := t.connect("a")
		s := t.openSession(r)
		t.createOwned(r, "d/~k", s)
		for _, dir := range []registry.Key{"d", "e"} {
			w, err := r.Watch(t.ctx, dir, registry.WatchOptions{})
			require.NoError(t, err)
			_, err = w.Next(t.ctx)
			require.NoError(t, err)
		}
		t.listFresh(r, "d")
		t.sleep(s.TTL() / 2) // time for a renewal
		require.NoError(t, r.Close(t.ctx))
		t.assertNoGoroutineLeft(before)
	}
}

// assertNoGoroutineLeft fails the case if a goroutine of the backend runs that did not run
// before.
func (t *test) assertNoGoroutineLeft(before map[string]string) {
	t.Helper()
	var left []string
	for wait := time.Duration(0); wait < time.Second; wait += pollEvery { // time to return
		t.settle(0)
		left = nil
		for id, stack := range goroutines(t) {
			if _, old := before[id]; !old && (t.bubble || t.isBackendStack(stack)) { // a bubble runs only the backend's
				left = append(left, stack)
			}
		}
		if len(left) == 0 || t.bubble {
			break
		}
		time.Sleep(pollEvery)
	}
	require.Empty(t, left, "goroutines left after Close:\n%s", strings.Join(left, "\n\n"))
}

// isBackendStack reports whether a goroutine runs code of the backend or was started by
// it.
func (t *test) isBackendStack(stack string) bool {
	for line := range strings.Lines(stack) {
		if strings.HasPrefix(line, "\t") { // a file line
			continue
		}
		for _, path := range t.backend.Packages {
			if strings.Contains(line, path+".") || strings.Contains(line, path+"/") {
				return true
			}
		}
	}
	return false
}

// goroutines returns the stacks of all other goroutines by ID: those of the bubble, if
// the test runs in one, else of the process.
func goroutines(t *test) map[string]string {
	stacks := strings.Split(stackDump(), "\n\n")
	own := strings.TrimPrefix(strings.SplitN(stacks[0], "\n", 2)[0], "goroutine ")
	_, bubble, _ := strings.Cut(own, "synctest bubble ")
	all := map[string]string{}
	for _, stack := range stacks[1:] {
		head, _, _ := strings.Cut(stack, "\n")
		if t.bubble && !strings.HasSuffix(head, "synctest bubble "+bubble) {
			continue
		}
		id := strings.Fields(head)[1]
		all[id] = stack
	}
	return all
}

func stackDump() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return strings.TrimSpace(string(buf[:n]))
		}
	}
}

// countGoroutines returns the number of all other goroutines but those of proxies, whose
// connections also are those between members, which come and go.
func countGoroutines(t *test) (n int) {
	proxy := reflect.TypeFor[Store]().PkgPath() + "/tcpproxy."
	for _, stack := range goroutines(t) {
		if !strings.Contains(stack, proxy) {
			n++
		}
	}
	return n
}

func closedHandle(t *test) {
	r := t.connect("a")
	w, err := r.Watch(t.ctx, "d", registry.WatchOptions{})
	require.NoError(t, err)
	require.NoError(t, r.Close(t.ctx))
	for name, call := range map[string]func() error{
		"Get":         func() error { _, err := r.Get(t.ctx, "k", registry.ReadOptions{}); return err },
		"fresh Get":   func() error { _, err := r.Get(t.ctx, "k", fresh); return err },
		"List":        func() error { _, err := r.List(t.ctx, "", registry.ReadOptions{}); return err },
		"Watch":       func() error { _, err := r.Watch(t.ctx, "", registry.WatchOptions{}); return err },
		"OpenSession": func() error { _, err := r.OpenSession(t.ctx, registry.SessionOptions{}); return err },
		"Next":        func() error { _, err := w.Next(t.ctx); return err },
		"Txn": func() error {
			_, err := r.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			return err
		},
		"Txn without operations": func() error {
			_, err := r.Txn(t.ctx, registry.Txn{If: []registry.Cond{registry.Absent("k")}})
			return err
		},
	} {
		require.ErrorIs(t, call(), registry.ErrClosed, name)
	}
	require.NoError(t, w.Close())
	require.NoError(t, r.Close(t.ctx), "closing twice is legal")
	t.runConcurrently(4, func(int) error { return r.Close(t.ctx) })
	t.assertAbsent(t.handleB(), "k")
}

func nothingAtInit(t *test) {
	t.eventually(0, "no goroutine of the backend runs before there is a handle", func() error {
		for _, stack := range strings.Split(stackDump(), "\n\n") {
			if t.isBackendStack(stack) { // may still be returning after the previous case
				return errors.New(stack)
			}
		}
		return nil
	})
}

func closeWakes(t *test) {
	r := t.connect("a")
	w, err := r.Watch(t.ctx, "d", registry.WatchOptions{})
	require.NoError(t, err)
	_, err = w.Next(t.ctx)
	require.NoError(t, err)
	heal := t.partition("a", Blackhole)
	type woken struct {
		call string
		err  error
	}
	calls := map[string]func(context.Context) error{
		"Next": func(ctx context.Context) error { _, err := w.Next(ctx); return err },
		"Get":  func(ctx context.Context) error { _, err := r.Get(ctx, "k", fresh); return err },
		"List": func(ctx context.Context) error { _, err := r.List(ctx, "", fresh); return err },
		"Txn": func(ctx context.Context) error {
			_, err := r.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			return err
		},
		"OpenSession": func(ctx context.Context) error {
			_, err := r.OpenSession(ctx, registry.SessionOptions{TTL: t.ttl})
			return err
		},
		"Watch": func(ctx context.Context) error { // it may leave the wait to Next
			w, err := r.Watch(ctx, "e", registry.WatchOptions{})
			if err == nil {
				_, err = w.Next(ctx)
			}
			return err
		},
	}
	results := make(chan woken, len(calls))
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		t.spawn(func(ctx context.Context) error {
			err := calls[name](ctx)
			results <- woken{name, err}
			return nil
		})
	}
	t.settle(50 * time.Millisecond)
	closing := time.Now()
	_ = r.Close(t.within(200 * time.Millisecond)) // the store is unreachable
	asleep := slices.Collect(maps.Keys(calls))
	for bound := time.After(t.withSlack(200 * time.Millisecond)); len(asleep) > 0; {
		select {
		case got := <-results:
			require.ErrorIs(t, got.err, registry.ErrClosed, got.call)
			if got.call == "Txn" {
				t.requireUnanswered(got.err)
			}
			asleep = slices.DeleteFunc(asleep, func(call string) bool { return call == got.call })
		case <-bound:
			t.Fatalf("still blocked %v after Close: %v", time.Since(closing), asleep)
		}
	}
	heal()
}

func closeEndsSessions(t *test) {
	for _, n := range draw(t, "sessions of a handle", inBubbleOr(t, []int{2, 65, 257}, []int{2, 65})...) {
		r := t.connect("a")
		all := make([]registry.Session, n)
		for i := range all {
			all[i] = t.openSession(r)
			t.createOwned(r, registry.Key(fmt.Sprintf("d/~%04d", i)), all[i])
		}
		require.NoError(t, r.Close(t.within(t.ttl+slack)))
		require.Empty(t, t.listFresh(t.handleB(), "d"), "keys of %d sessions of a closed handle", n)
		for _, s := range all {
			t.assertHolds(t.handleB(), registry.Dead(s.ID()))
			require.NoError(t, inState(s, registry.SessionClosed))
			require.ErrorIs(t, s.Err(), registry.ErrClosed)
			t.awaitClosed(s.Lost(), 0, "Lost is closed")
			require.NoError(t, s.Close(t.ctx))
		}
	}
}

func closeWhileUnreachable(t *test) {
	b := t.handleB()
	t.listFresh(b, "")
	t.settle(100 * time.Millisecond)
	before := goroutines(t)
	var left []registry.Key
	const short = 200 * time.Millisecond
	for i, form := range contextForms {
		machine, key := fmt.Sprintf("a%d", i), registry.Key(fmt.Sprintf("~%d", i))
		r := t.connect(machine)
		s := t.openSession(r)
		t.createOwned(r, key, s)
		t.partition(machine, Blackhole)
		start := time.Now()
		ctx, cause := form.begin(t, short)
		err := r.Close(ctx)
		require.ErrorIs(t, err, cause, "the session may live, and the context ended by %s", form.name)
		require.NoError(t, checkUnavailable(err))
		require.Less(t, time.Since(start), t.withSlack(short), "Close outlasted its context")
		t.assertNoGoroutineLeft(before)
		require.NoError(t, inState(s, registry.SessionClosed))
		left = append(left, key)
	}
	for _, key := range left {
		t.eventually(t.ttl, "the session expires", func() error { return t.checkAbsent(b, key) })
	}
}

func independentHandles(t *test) {
	one, two := t.connect("a"), t.connect("a") // on the same machine
	s := t.openSession(two)
	t.createOwned(two, "d/~k", s)
	f := t.follow(two, "d")
	f.converge(two)
	g := t.follow(one, "d")
	g.converge(two)
	t.openSession(one)
	require.NoError(t, one.Close(t.ctx))
	t.create(two, "d/k", "v")
	f.awaitValue("d/k", "v")
	require.NoError(t, inState(s, registry.SessionConnected))
	t.assertHolds(t.handleB(), registry.Alive(s.ID()))
	_, err := one.Get(t.ctx, "d/k", fresh)
	require.True(t, errors.Is(err, registry.ErrClosed), fmt.Sprint(err))
}

// openedDuringClose opens a session and a watch and commits, and closes the handle at some moment
// meanwhile. Each call returns ErrClosed, or the session or watch that it opened has ended.
func openedDuringClose(t *test) {
	const spread = 5 * time.Millisecond
	b := t.handleB()
	n := t.repeats(100, 12)
	t.delayInBubble("a", spread/2)
	for i := range n {
		r := t.connect("a")
		t.listFresh(r, "d") // over a connection that stands
		key := registry.Key(fmt.Sprintf("d/k%03d", i))
		var s registry.Session
		var w registry.Watcher
		calls := []func() error{
			func() (err error) { s, err = r.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl}); return err },
			func() (err error) { w, err = r.Watch(t.ctx, "d", registry.WatchOptions{}); return err },
			func() error {
				_, err := r.Txn(t.ctx, registry.Txn{Then: []registry.Op{registry.Create(key, nil)}})
				return err
			},
			func() error {
				time.Sleep(time.Duration(i) * spread / time.Duration(n))
				return r.Close(t.within(t.ttl))
			},
		}
		errs := make([]error, len(calls))
		t.runConcurrently(len(calls), func(i int) error {
			errs[i] = calls[i]()
			return nil
		})
		opened, watched, committed, closed := errs[0], errs[1], errs[2], errs[3]
		require.NoError(t, closed, "Close")
		if opened == nil {
			require.NoError(t, inState(s, registry.SessionClosed), "a session of a closed handle")
			require.ErrorIs(t, s.Err(), registry.ErrClosed)
			t.awaitClosed(s.Lost(), 0, "Lost is closed")
			t.assertHolds(b, registry.Dead(s.ID()))
		} else {
			require.ErrorIs(t, opened, registry.ErrClosed, "OpenSession")
		}
		if watched == nil {
			_, watched = w.Next(t.ctx)
		}
		require.ErrorIs(t, watched, registry.ErrClosed, "Watch, or Next")
		if committed == nil {
			t.getFresh(b, key)
			continue
		}
		require.ErrorIs(t, committed, registry.ErrClosed, "Txn")
		if !errors.Is(committed, registry.ErrUnknownOutcome) { // it was not sent, or not applied
			t.assertAbsent(b, key)
		}
	}
}

func manyHandles(t *test) {
	n := slices.Max(draw(t, "handles", inBubbleOr(t, []int{33, 129}, []int{33})...))
	all := make([]*follower, n)
	handles := make([]registry.Registry, n)
	for i := range all {
		handles[i] = t.connect("a") // on one machine
		all[i] = t.follow(handles[i], "d")
	}
	for i, r := range handles {
		key := registry.Key(fmt.Sprintf("d/k%d", i))
		t.create(r, key, "v")
		if i%16 == 0 || i == n-1 {
			for _, f := range all {
				f.awaitValue(key, "v")
			}
		}
	}
	s := t.openSession(handles[n-1])
	t.createOwned(handles[n-1], "e/~k", s)
	for _, r := range handles[:n-1] {
		require.NoError(t, r.Close(t.ctx))
	}
	t.assertHolds(handles[n-1], registry.Alive(s.ID()))
	t.create(t.handleB(), "d/last", "v")
	all[n-1].awaitValue("d/last", "v")
}
