package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

const (
	// slack is what a busy machine may add to a bound.
	slack = 3 * time.Second
	// caseBudget ends a case that hangs, before go test does.
	caseBudget = 2 * time.Minute
	// pollEvery is how often eventually looks again.
	pollEvery = 10 * time.Millisecond
)

// test is what a case works with: a fresh store, handles on it, and steps that fail the
// case when they go wrong.
type test struct {
	testing.TB
	backend Backend
	store   *Store
	ttl     time.Duration // to ask for
	bubble  bool
	ctx     context.Context // ends with the case
	handles map[string]registry.Registry
	tasks   sync.WaitGroup
}

func newTest(tb testing.TB, b Backend) *test {
	ctx, cancel := context.WithTimeout(context.Background(), caseBudget)
	t := &test{TB: tb, backend: b, ttl: b.ttl(), bubble: b.Bubble, ctx: ctx, handles: map[string]registry.Registry{}}
	tb.Cleanup(func() {
		cancel()
		t.tasks.Wait()
	})
	t.store = b.Open(tb)
	return t
}

// a and b are handles of two machines.
func (t *test) a() registry.Registry { return t.handle("a") }
func (t *test) b() registry.Registry { return t.handle("b") }

// handle returns the handle of a machine, the same each time.
func (t *test) handle(machine string) registry.Registry {
	t.Helper()
	if t.handles[machine] == nil {
		t.handles[machine] = t.connect(machine)
	}
	return t.handles[machine]
}

// connect returns another handle of a machine and closes it when the case is over.
func (t *test) connect(machine string) registry.Registry {
	t.Helper()
	r := t.store.Connect(t.TB, machine)
	require.NotNil(t, r, "connect %s", machine)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), t.ttl+slack)
		defer cancel()
		if err := r.Close(ctx); err != nil && !t.Failed() {
			t.Errorf("close the handle of %s at the end: %v", machine, err)
		}
	})
	return r
}

// n is how often a case repeats something: virtual time is cheap, a server's is not.
func (t *test) n(bubble, real int) int {
	if t.bubble {
		return bubble
	}
	return real
}

// within returns a context that ends after d or with the case.
func (t *test) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.ctx, d)
	t.Cleanup(cancel)
	return ctx
}

// spawn runs f in a goroutine that the case waits for. An error of f fails the case,
// unless the case was over first. The context ends with stop or with the case.
func (t *test) spawn(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan struct{})
	t.tasks.Go(func() {
		defer close(done)
		if err := guarded(func() error { return f(ctx) }); err != nil && ctx.Err() == nil {
			t.Errorf("%v", err)
		}
	})
	return func() {
		cancel()
		<-done
	}
}

// together runs n copies of f at once, and fails the case with the first error.
func (t *test) together(n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = guarded(func() error { return f(i) }) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// guarded turns a panic of f, which would end all tests, into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// pause lets d pass.
func (t *test) pause(d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.Fatalf("the case took longer than %v", caseBudget)
	}
}

// settle gives what is under way the time to happen: all of it in a bubble, and the
// given time otherwise.
func (t *test) settle(real time.Duration) {
	t.Helper()
	if t.bubble {
		synctest.Wait()
		return
	}
	t.pause(real)
}

// bound is d with what the clock may add to it: a busy machine in real time, and in a
// bubble the order of what happens at one instant.
func (t *test) bound(d time.Duration) time.Duration {
	if t.bubble {
		return d + pollEvery
	}
	return d + slack
}

// eventually fails the case unless ok returns nil within the bound of d.
func (t *test) eventually(d time.Duration, what string, ok func() error) {
	t.Helper()
	d = t.bound(d)
	end := time.Now().Add(d)
	for {
		err := ok()
		if err == nil {
			return
		}
		if !time.Now().Before(end) {
			t.Fatalf("%s: not within %v: %v", what, d, err)
		}
		t.pause(pollEvery)
	}
}

// closed fails the case unless ch is closed within the bound of d.
func (t *test) closed(ch <-chan struct{}, d time.Duration, what string) {
	t.Helper()
	d = t.bound(d)
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
}

var fresh = registry.ReadOptions{Fresh: true}

// commit applies x and returns its Rev.
func (t *test) commit(r registry.Registry, x registry.Txn) registry.Rev {
	t.Helper()
	rev, err := r.Txn(t.ctx, x)
	require.NoError(t, err, "commit %v", x.Then)
	require.False(t, rev.IsZero(), "the Rev of a commit is zero")
	return rev
}

// do is commit for operations without conditions.
func (t *test) do(r registry.Registry, ops ...registry.Op) registry.Rev {
	t.Helper()
	return t.commit(r, registry.Txn{Then: ops})
}

func (t *test) create(r registry.Registry, key registry.Key, value string) registry.Rev {
	t.Helper()
	return t.do(r, registry.Create(key, []byte(value)))
}

// own creates an owned key.
func (t *test) own(r registry.Registry, key registry.Key, s registry.Session) registry.Rev {
	t.Helper()
	return t.do(r, registry.CreateOwned(key, []byte("of "+string(s.ID())), s.ID()))
}

// holds fails the case unless the conditions hold now.
func (t *test) holds(r registry.Registry, conds ...registry.Cond) {
	t.Helper()
	_, err := r.Txn(t.ctx, registry.Txn{If: conds})
	require.NoError(t, err, "%v should hold", conds)
}

// refused sends x and fails the case unless it conflicts at item index.
func (t *test) refused(r registry.Registry, x registry.Txn, index int) {
	t.Helper()
	_, err := r.Txn(t.ctx, x)
	require.ErrorIs(t, err, registry.ErrConflict, "%v then %v", x.If, x.Then)
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict, "an ErrConflict tells which item did not hold")
	require.Equal(t, index, conflict.Index, "the item that did not hold; the error is %v", err)
}

// get returns the entry at key as of now.
func (t *test) get(r registry.Registry, key registry.Key) registry.Entry {
	t.Helper()
	e, err := r.Get(t.ctx, key, fresh)
	require.NoError(t, err, "get %s", key)
	require.Equal(t, key, e.Key)
	return e
}

// absent fails the case unless keys do not exist now.
func (t *test) absent(r registry.Registry, keys ...registry.Key) {
	t.Helper()
	for _, key := range keys {
		_, err := r.Get(t.ctx, key, fresh)
		require.ErrorIs(t, err, registry.ErrNotFound, "get %s", key)
	}
}

// list returns the entries of dir as of now.
func (t *test) list(r registry.Registry, dir registry.Key) []registry.Entry {
	t.Helper()
	l, err := r.List(t.ctx, dir, fresh)
	require.NoError(t, err, "list %q", dir)
	return l.Entries
}

// session opens a session with the TTL of the backend.
func (t *test) session(r registry.Registry) registry.Session {
	t.Helper()
	s, err := r.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
	require.NoError(t, err, "open a session")
	return s
}

// partition cuts a machine off, at the latest until the end of the case.
func (t *test) partition(machine string, c Cut) (heal func()) {
	t.Helper()
	heal = t.store.Partition(machine, c)
	t.Cleanup(heal)
	return heal
}

func keysOf(entries []registry.Entry) []registry.Key {
	keys := make([]registry.Key, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys
}

// state returns the state of s alone.
func state(s registry.Session) registry.SessionState {
	st, _ := s.State()
	return st
}

// is returns nil once s is in one of the states.
func is(s registry.Session, states ...registry.SessionState) error {
	now := state(s)
	for _, want := range states {
		if now == want {
			return nil
		}
	}
	return fmt.Errorf("session is %v, not %v", now, states)
}
