package remote

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Calls are the pending calls and the goroutines of a handle, so that Close can end the
// ones and wait for the others.
type Calls struct {
	bound time.Duration
	ctx   context.Context // ends with Close
	end   context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	pending map[*call]struct{}
	tasks   sync.WaitGroup
}

type call struct{ cancel context.CancelCauseFunc }

// NewCalls returns the calls of a new handle, none of which takes longer than bound.
func NewCalls(bound time.Duration) *Calls {
	c := &Calls{bound: bound, pending: make(map[*call]struct{})}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	return c
}

// Begin registers a call. Its context ends with ctx, with end, when the bound is over, or
// with Close, and then has registry.ErrClosed as its cause. end must be called. The error
// is registry.ErrClosed after Close, or that of a ctx that has ended.
func (c *Calls) Begin(ctx context.Context) (bounded context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrHandleClosed
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ctx, stop := context.WithTimeoutCause(ctx, c.bound, noAnswer{c.bound})
	ctx, cancel := context.WithCancelCause(ctx)
	p := &call{cancel}
	c.pending[p] = struct{}{}
	return ctx, func() {
		c.mu.Lock()
		delete(c.pending, p)
		c.mu.Unlock()
		cancel(nil)
		stop()
	}, nil
}

// noAnswer is why a call was given up that nobody else bounded.
type noAnswer struct{ bound time.Duration }

func (e noAnswer) Error() string { return fmt.Sprintf("no answer in %v", e.bound) }

// Is makes it a time-out, like the end of a caller's own bound.
func (e noAnswer) Is(target error) bool { return target == context.DeadlineExceeded }

// Ended returns err, which a call with that context returned, or, if the context has ended,
// why, with err as a remark: what a client library makes of the end of a context tells
// nobody who ended it.
func Ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
}

// Context ends when Close is called, with registry.ErrClosed as its cause.
func (c *Calls) Context() context.Context { return c.ctx }

// Go runs f in a goroutine that Wait waits for, unless Close was called: then it returns
// false. f has to return soon after Context has ended.
func (c *Calls) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(f)
	return true
}

// Close ends all pending calls and lets none begin. It reports whether it is the first.
func (c *Calls) Close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.closed = true
	c.end(ErrHandleClosed)
	for p := range c.pending {
		p.cancel(ErrHandleClosed)
	}
	return true
}

// Wait returns when every goroutine has returned. It is to be called after Close.
func (c *Calls) Wait() { c.tasks.Wait() }
