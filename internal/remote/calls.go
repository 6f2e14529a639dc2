package remote

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Calls are the pending calls and the goroutines of a handle. Close ends the calls, and Wait
// waits for the goroutines.
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

// NewCalls returns the calls of a new handle, each of which is bounded by bound.
func NewCalls(bound time.Duration) *Calls {
	c := &Calls{bound: bound, pending: make(map[*call]struct{})}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	return c
}

// Begin registers a call. Its context ends with ctx, with end, after the bound, or with Close
// and registry.ErrClosed as the cause. The caller must call end. The error is
// registry.ErrClosed after Close, or the cause of ctx if that has ended.
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

// noAnswer is the cause of a context that the bound of Calls has ended.
type noAnswer struct{ bound time.Duration }

func (e noAnswer) Error() string { return fmt.Sprintf("no answer in %v", e.bound) }

// Is makes it a deadline error, like the end of a caller's own deadline.
func (e noAnswer) Is(target error) bool { return target == context.DeadlineExceeded }

// CallError returns err, which a call with ctx returned. If ctx has ended, it returns the cause
// instead, with err as a remark: the errors of client libraries do not contain the cause.
func CallError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
}

// Context ends when Close is called, with registry.ErrClosed as its cause.
func (c *Calls) Context() context.Context { return c.ctx }

// Go runs f in a goroutine that Wait waits for. After Close it returns false instead. f must
// return soon after Context has ended.
func (c *Calls) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(f)
	return true
}

// Close ends all pending calls and refuses new ones. It reports whether it was called for the
// first time.
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

// Wait waits for all goroutines. Call it after Close.
func (c *Calls) Wait() { c.tasks.Wait() }
