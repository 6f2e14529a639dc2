package executor

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCall_ReturnsWhatTheHandlerReturns(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	r := &Run{Shard: 2}
	for _, want := range []error{nil, io.EOF} {
		got := callHandler(ctx, HandlerFunc(func(ctx context.Context, got *Run) error {
			assert.Equal(t, "value", ctx.Value(key{}))
			assert.Same(t, r, got)
			return want
		}), r)
		assert.ErrorIs(t, got, want)
		if want != nil {
			assert.EqualError(t, got, want.Error())
		}
	}
}

func explode(context.Context, *Run) error { panic(io.ErrUnexpectedEOF) }

func TestCall_APanicIsAnError(t *testing.T) {
	t.Run("with its value and the stack of its place", func(t *testing.T) {
		err := callHandler(t.Context(), HandlerFunc(explode), &Run{})
		var p *PanicError
		require.ErrorAs(t, err, &p)
		assert.Equal(t, io.ErrUnexpectedEOF, p.Value)
		assert.Contains(t, string(p.Stack), "executor.explode")
		assert.EqualError(t, err, "handler panicked: unexpected EOF")
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, "a value that is an error is wrapped")
	})
	t.Run("of any value", func(t *testing.T) {
		err := callHandler(t.Context(), HandlerFunc(func(context.Context, *Run) error { panic(42) }), &Run{})
		assert.EqualError(t, err, "handler panicked: 42")
		assert.NoError(t, errors.Unwrap(err))
	})
	t.Run("of nil", func(t *testing.T) {
		err := callHandler(t.Context(), HandlerFunc(func(context.Context, *Run) error { panic(nil) }), &Run{})
		var p *PanicError
		require.ErrorAs(t, err, &p)
	})
	t.Run("of the runtime", func(t *testing.T) {
		err := callHandler(t.Context(), HandlerFunc(func(_ context.Context, r *Run) error {
			return []error{nil}[r.Shard]
		}), &Run{Shard: 1})
		var re runtime.Error
		assert.ErrorAs(t, err, &re)
	})
	t.Run("of a handler that is nil", func(t *testing.T) {
		assert.ErrorContains(t, callHandler(t.Context(), HandlerFunc(nil), &Run{}), "nil pointer")
	})
	t.Run("after it has been recovered by the handler it is none", func(t *testing.T) {
		err := callHandler(t.Context(), HandlerFunc(func(context.Context, *Run) (err error) {
			defer func() { err = recover().(error) }()
			panic(io.EOF)
		}), &Run{})
		assert.ErrorIs(t, err, io.EOF)
		assert.EqualError(t, err, "EOF")
	})
}

func TestPool_GoexitIsAnErrorOfTheRunAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exit := HandlerFunc(func(context.Context, *Run) error {
			time.Sleep(time.Second)
			runtime.Goexit()
			return nil
		})
		fine := HandlerFunc(func(context.Context, *Run) error { return nil })
		p := &pool{queue: queue{bound: 1}}
		var errs []error
		for _, h := range []Handler{exit, fine, exit, fine} {
			p.addTask(&task{do: func() {
				reportResult(func() error { return callHandler(t.Context(), h, &Run{}) }, func(err error) { errs = append(errs, err) })
			}})
		}
		<-p.idle()
		assert.Equal(t, []error{errGoexit, nil, errGoexit, nil}, errs)
		synctest.Wait()
		assert.Zero(t, p.queue.running)
	})
}

func TestCall_ReturnsWhenTheHandlerHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := callHandler(ctx, HandlerFunc(func(context.Context, *Run) error {
			time.Sleep(time.Minute) // does not listen
			return nil
		}), &Run{})
		assert.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}
