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
	// slack is added to bounds in real time, for a busy machine.
	slack = 3 * time.Second
	// caseBudget bounds a case, so that it fails before go test times out.
	caseBudget = 2 * time.Minute
	// seedBudget is added to caseBudget for each recorded history.
	seedBudget = time.Minute
	// pollEvery is the polling interval of eventually.
	pollEvery = 10 * time.Millisecond
)

// test is the environment of a case: a fresh store, handles on it, and steps that fail
// the case on an error.
type test struct {
	testing.TB
	backend Backend
	store   *Store
	ttl     time.Duration // requested for sessions
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

// handleA and handleB return the handles of two machines.
func (t *test) handleA() registry.Registry { return t.handle("a") }
func (t *test) handleB() registry.Registry { return t.handle("b") }

// handle returns the handle of a machine, the same at each call.
func (t *test) handle(machine string) registry.Registry {
	t.Helper()
	if t.handles[machine] == nil {
		t.handles[machine] = t.connect(machine)
	}
	return t.handles[machine]
}

// connect returns a new handle of a machine and closes it at the end of the case.
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

// below is a prefixed registry that also closes the registry it is part of.
type below struct {
	registry.Registry
	whole registry.Registry
}

func (b below) Close(ctx context.Context) error {
	return errors.Join(b.Registry.Close(ctx), b.whole.Close(ctx))
}

// repeats returns one of two repetition counts: virtual time is cheap, real time is not.
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

// spawn runs f in a goroutine that the case waits for. An error of f fails the case
// unless the case has ended. The context of f ends with stop or with the case.
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

// runConcurrently runs n copies of f concurrently and fails the case if one returns an
// error.
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

// recoverPanic returns a panic of f as an error; otherwise it would end all tests.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// sleep waits for d.
func (t *test) sleep(d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.Fatal("the case took too long")
	}
}

// settle lets pending work finish: all of it in a bubble, otherwise as much as happens
// within the given time.
func (t *test) settle(real time.Duration) {
	t.Helper()
	if t.bubble {
		synctest.Wait()
		return
	}
	t.sleep(real)
}

// withSlack returns d plus the tolerance of the clock: slack in real time; in a bubble a
// little, since events at one instant have no order.
func (t *test) withSlack(d time.Duration) time.Duration {
	if t.bubble {
		return d + pollEvery
	}
	return d + slack
}

// eventually polls ok and fails the case unless ok returns nil within d plus slack.
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

// awaitClosed fails the case unless ch is closed within d plus slack.
func (t *test) awaitClosed(ch <-chan struct{}, d time.Duration, what string) {
	t.Helper()
	d = t.withSlack(d)
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
}

// unlessSlow repeats an observation that proves nothing about the registry if the test itself
// was scheduled late. observe returns an error if a promise seems broken, which counts if
// the machine delayed the process by less than tolerable meanwhile.
func (t *test) unlessSlow(tolerable time.Duration, observe func() error) {
	t.Helper()
	if t.bubble { // never is
		require.NoError(t, observe())
		return
	}
	const attempts = 3
	for range attempts {
		late := t.measureLateness()
		err := observe()
		worst := late()
		if err == nil {
			return
		}
		if worst < tolerable {
			t.Fatalf("%v; the machine delayed the test by %v at most", err, worst)
		}
		t.Logf("nothing is proved: %v, while the machine delayed the test by %v", err, worst)
	}
	t.Fatalf("in %d attempts the machine delayed the test by %v or more, so nothing is proved", attempts, tolerable)
}

// measureLateness measures how much later than asked for a sleep ends, until worst, which
// returns the most.
func (t *test) measureLateness() (worst func() time.Duration) {
	var most time.Duration
	stop := t.spawn(func(ctx context.Context) error {
		for {
			began := time.Now()
			if !sleepUnlessDone(ctx, pollEvery) {
				return nil
			}
			most = max(most, time.Since(began)-pollEvery)
		}
	})
	return func() time.Duration {
		stop()
		return most
	}
}
