package conformance

import (
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// draw returns the values of a case's size or duration: the boundaries, which are always among them,
// and one more between the least and the greatest, drawn by Backend.Seed. A failure reports them.
func draw[T int | time.Duration](t *test, what string, boundaries ...T) []T {
	t.Helper()
	seed, name := t.backend.seed(), fnv.New64a()
	_, _ = name.Write([]byte(what))
	random := rand.New(rand.NewPCG(seed, name.Sum64()))
	least, greatest := slices.Min(boundaries), slices.Max(boundaries)
	values := slices.Clone(boundaries)
	if least < greatest {
		values = append(values, least+T(random.Int64N(int64(greatest-least))))
	}
	t.Logf("seed %d, %s: %v", seed, what, values)
	return values
}

// inBubbleOr returns values for virtual time, or others for real time.
func inBubbleOr[T any](t *test, bubble, real []T) []T {
	if t.bubble {
		return bubble
	}
	return real
}

// contextForm is a way in which a context ends.
type contextForm struct {
	name  string
	begin func(t *test, after time.Duration) (context.Context, error)
}

// errCallerEnded is the cause of a context that ends with a cause.
var errCallerEnded = errors.New("the caller has ended")

// contextForms are the ways in which a context ends. begin returns a context of the case that ends
// after a duration, and the cause that it then has. Zero means that it has ended.
var contextForms = []contextForm{
	{"a cancel", func(t *test, after time.Duration) (context.Context, error) {
		ctx, cancel := context.WithCancel(t.ctx)
		t.callAfter(after, cancel)
		return ctx, context.Canceled
	}},
	{"a cancel with a cause", func(t *test, after time.Duration) (context.Context, error) {
		ctx, cancel := context.WithCancelCause(t.ctx)
		t.callAfter(after, func() { cancel(errCallerEnded) })
		return ctx, errCallerEnded
	}},
	{"a deadline", func(t *test, after time.Duration) (context.Context, error) {
		return t.within(after), context.DeadlineExceeded
	}},
	{"a deadline with a cause", func(t *test, after time.Duration) (context.Context, error) {
		ctx, cancel := context.WithTimeoutCause(t.ctx, after, errCallerEnded)
		t.Cleanup(cancel)
		return ctx, errCallerEnded
	}},
	{"a cancel of its parent, before its deadline", func(t *test, after time.Duration) (context.Context, error) {
		parent, end := context.WithCancelCause(t.ctx)
		ctx, cancel := context.WithTimeout(parent, after+time.Hour)
		t.Cleanup(cancel)
		t.callAfter(after, func() { end(errCallerEnded) })
		return ctx, errCallerEnded
	}},
}

// callAfter calls f once, after d or at the end of the case. Zero means now.
func (t *test) callAfter(d time.Duration, f func()) {
	t.Cleanup(f)
	if d <= 0 {
		f()
		return
	}
	timer := time.AfterFunc(d, f)
	t.Cleanup(func() { timer.Stop() })
}

// allow lets the case take d of virtual time more than others. It is called before the case makes
// contexts of its own.
func (t *test) allow(d time.Duration) {
	if !t.bubble {
		return
	}
	var cancel context.CancelFunc
	t.ctx, cancel = context.WithTimeout(context.WithoutCancel(t.ctx), d+caseBudget)
	t.Cleanup(cancel)
}
