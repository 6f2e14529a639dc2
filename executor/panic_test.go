package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor/internal/pool"
)

func TestCall_ReturnsWhatTheHandlerReturns(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	r := &Run{RunInfo: RunInfo{Shard: 2}}
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
		}), &Run{RunInfo: RunInfo{Shard: 1}})
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
		p := pool.New(pool.Options{Bound: 1})
		var errs []error
		for _, h := range []Handler{exit, fine, exit, fine} {
			p.Add(slices.Values([]*pool.Task{{Do: func() {
				reportResult(func() error { return callHandler(t.Context(), h, &Run{}) }, func(err error) { errs = append(errs, err) })
			}}}))
		}
		<-p.Idle()
		assert.Equal(t, []error{errGoexit, nil, errGoexit, nil}, errs)
		synctest.Wait()
		assert.Empty(t, p.CountByJob())
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

// TestPool_UnderStress has handlers return, panic and call Goexit while bounds change.
func TestPool_UnderStress(t *testing.T) {
	const tasks, adders = 300, 4
	for seed := range uint64(10) {
		bound := int(seed % 4)
		p := pool.New(pool.Options{Bound: bound})
		var concluded sync.Map
		var running atomic.Int32
		var all sync.WaitGroup
		for adder := range adders {
			rng := rand.New(rand.NewPCG(seed, uint64(adder)))
			all.Go(func() {
				for i := range tasks {
					job, how := fmt.Sprint("job-", rng.IntN(5)), rng.IntN(4)
					if rng.IntN(20) == 0 {
						p.SetBound(pool.Lane{Name: job}, rng.IntN(4))
					}
					h := HandlerFunc(func(context.Context, *Run) error {
						runtime.Gosched()
						switch how {
						case 0:
							panic("stress")
						case 1:
							runtime.Goexit()
						}
						return nil
					})
					p.Add(slices.Values([]*pool.Task{{Job: job, Fire: at(rng.IntN(10)), Do: func() {
						if n := running.Add(1); bound > 0 {
							assert.LessOrEqual(t, int(n), bound, "seed %d", seed)
						}
						reportResult(func() error { return callHandler(t.Context(), h, &Run{}) }, func(err error) {
							running.Add(-1)
							_, twice := concluded.LoadOrStore(fmt.Sprint(adder, "/", i), err)
							assert.False(t, twice)
							switch how {
							case 0:
								assert.ErrorAs(t, err, new(*PanicError))
							case 1:
								assert.True(t, errors.Is(err, errGoexit))
							default:
								assert.NoError(t, err)
							}
						})
					}}}))
				}
			})
		}
		all.Wait()
		<-p.Idle()
		n := 0
		concluded.Range(func(any, any) bool { n++; return true })
		require.Equal(t, tasks*adders, n, "seed %d", seed)
		require.Empty(t, p.CountByJob(), "seed %d", seed)
	}
}
