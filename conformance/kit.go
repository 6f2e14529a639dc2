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
	// seedBudget is what each history adds to that.
	seedBudget = time.Minute
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
	ctx, cancel := context.WithTimeout(context.Background(), caseBudget+time.Duration(b.seeds())*seedBudget)
	t := &test{TB: tb, backend: b, ttl: b.ttl(), bubble: b.Bubble, ctx: ctx, handles: map[string]registry.Registry{}}
	tb.Cleanup(func() {
		cancel()
		t.tasks.Wait()
	})
	t.store = b.Open(tb)
	return t
}

// handleA and b are handles of two machines.
func (t *test) handleA() registry.Registry { return t.handle("a") }
func (t *test) handleB() registry.Registry { return t.handle("b") }

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
	if dir := t.backend.Below; dir != "" {
		r = below{registry.Prefix(r, dir), r}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), t.ttl+slack)
		defer cancel()
		if err := r.Close(ctx); err != nil && !t.Failed() {
			t.Errorf("close the handle of %s at the end: %v", machine, err)
		}
	})
	return r
}

// below is a Prefix that closes what it is a part of.
type below struct {
	registry.Registry
	whole registry.Registry
}

func (b below) Close(ctx context.Context) error {
	return errors.Join(b.Registry.Close(ctx), b.whole.Close(ctx))
}

// repeats is how often a case repeats something: virtual time is cheap, a server's is not.
func (t *test) repeats(bubble, real int) int {
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
		if err := recoverPanic(func() error { return f(ctx) }); err != nil && ctx.Err() == nil {
			t.Errorf("%v", err)
		}
	})
	return func() {
		cancel()
		<-done
	}
}

// runConcurrently runs n copies of f at once, and fails the case with the first error.
func (t *test) runConcurrently(n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = recoverPanic(func() error { return f(i) }) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// recoverPanic turns a panic of f, which would end all tests, into an error.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// sleep lets d pass.
func (t *test) sleep(d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.Fatal("the case took too long")
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
	t.sleep(real)
}

// withSlack is d with what the clock may add to it: a busy machine in real time, and in a
// bubble the order of what happens at one instant.
func (t *test) withSlack(d time.Duration) time.Duration {
	if t.bubble {
		return d + pollEvery
	}
	return d + slack
}

// eventually fails the case unless ok returns nil within the bound of d.
func (t *test) eventually(d time.Duration, what string, ok func() error) {
	t.Helper()
	d = t.withSlack(d)
	end := time.Now().Add(d)
	for {
		err := ok()
		if err == nil {
			return
		}
		if !time.Now().Before(end) {
			t.Fatalf("%s: not within %v: %v", what, d, err)
		}
		t.sleep(pollEvery)
	}
}

// awaitClosed fails the case unless ch is closed within the bound of d.
func (t *test) awaitClosed(ch <-chan struct{}, d time.Duration, what string) {
	t.Helper()
	d = t.withSlack(d)
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
}
