package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestCalls(t *testing.T) {
	const bound = 5 * time.Second
	for name, f := range map[string]func(t *testing.T, c *Calls){
		"a call ends with its caller's context, and has its cause": func(t *testing.T, c *Calls) {
			cause := errors.New("cancelled")
			ctx, cancel := context.WithCancelCause(t.Context())
			call, end, err := c.Begin(ctx)
			require.NoError(t, err)
			defer end()
			cancel(cause)
			<-call.Done()
			require.ErrorIs(t, CallError(call, errors.New("remark")), cause)
		},
		"a call ends with its caller's deadline": func(t *testing.T, c *Calls) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			call, end, err := c.Begin(ctx)
			require.NoError(t, err)
			defer end()
			start := time.Now()
			<-call.Done()
			require.Equal(t, time.Second, time.Since(start))
			require.ErrorIs(t, CallError(call, call.Err()), context.DeadlineExceeded)
		},
		"a call without a deadline ends after the bound": func(t *testing.T, c *Calls) {
			call, end, err := c.Begin(t.Context())
			require.NoError(t, err)
			defer end()
			start := time.Now()
			<-call.Done()
			require.Equal(t, bound, time.Since(start))
			err = CallError(call, errors.New("remark"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "no answer in 5s (remark)")
		},
		"the error of a call whose context has not ended is unchanged": func(t *testing.T, c *Calls) {
			call, end, err := c.Begin(t.Context())
			require.NoError(t, err)
			defer end()
			answer := errors.New("answer")
			require.Equal(t, answer, CallError(call, answer))
			require.NoError(t, CallError(call, nil))
		},
		"Close ends pending calls and refuses new ones": func(t *testing.T, c *Calls) {
			call, end, err := c.Begin(t.Context())
			require.NoError(t, err)
			defer end()
			require.True(t, c.Close())
			<-call.Done()
			require.ErrorIs(t, CallError(call, call.Err()), registry.ErrClosed)
			require.ErrorIs(t, context.Cause(c.Context()), registry.ErrClosed)
			_, _, err = c.Begin(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
			require.EqualError(t, err, "registry closed")
			require.False(t, c.Go(func() { t.Error("it runs") }))
			require.False(t, c.Close())
		},
		"a context that has ended begins no call": func(t *testing.T, c *Calls) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _, err := c.Begin(ctx)
			require.ErrorIs(t, err, context.Canceled)
		},
		"Wait waits for goroutines": func(t *testing.T, c *Calls) {
			var returned bool
			require.True(t, c.Go(func() {
				<-c.Context().Done()
				time.Sleep(time.Second)
				returned = true
			}))
			c.Close()
			c.Wait()
			require.True(t, returned)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewCalls(bound)
				f(t, c)
				c.Close()
				c.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				require.Empty(t, c.pending, "nothing is kept of calls that have ended")
			})
		})
	}
}
