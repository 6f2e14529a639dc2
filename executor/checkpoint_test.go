package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// counting is a handler that counts to 5 in steps of a second, from its checkpoint on, and stops early
// when it is asked to. It appends each step to steps.
func counting(f *fleet, steps *[]string) executor.HandlerFunc {
	return func(ctx context.Context, r *executor.Run) error {
		data, err := r.Resume(ctx)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(data))
		for n < 5 {
			select {
			case <-r.Yield():
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
			}
			n++
			if err := r.Checkpoint(ctx, []byte(strconv.Itoa(n))); err != nil {
				return err
			}
			f.mu.Lock()
			*steps = append(*steps, r.Instance+strconv.Itoa(n))
			f.mu.Unlock()
		}
		return nil
	}
}

func TestCheckpoint(t *testing.T) {
	bubble(t, "reaches the next attempt on another instance after a crash", func(t *testing.T, f *fleet) {
		var steps []string
		f.start("a", executor.Options{}, 1, counting(f, &steps))
		f.start("b", executor.Options{}, 1, counting(f, &steps))
		until(1)
		time.Sleep(1500 * time.Millisecond) // two steps
		f.mu.Lock()
		require.Len(t, steps, 2)
		first := steps[0][:1]
		f.mu.Unlock()
		defer f.server.Partition(first)()
		until(2)
		second := map[string]string{"a": "b", "b": "a"}[first]
		assert.Equal(t, []string{first + "1", first + "2", second + "3", second + "4", second + "5"}, steps)
	})
	bubble(t, "is committed together with other writes, or not at all", func(t *testing.T, f *fleet) {
		var errs []error
		f.start("a", executor.Options{}, 1, func(ctx context.Context, r *executor.Run) error {
			errs = append(errs, r.Checkpoint(ctx, []byte("1"), registry.Create("result", []byte("x"))))
			errs = append(errs, r.Checkpoint(ctx, []byte("2"), registry.Create("result", []byte("y"))))
			data, err := r.Resume(ctx)
			assert.Equal(t, "1", string(data))
			return err
		})
		until(1)
		require.Len(t, errs, 2)
		assert.NoError(t, errs[0])
		var conflict *registry.ConflictError
		require.ErrorAs(t, errs[1], &conflict)
		assert.Zero(t, conflict.Index)
	})
	bubble(t, "is refused after the session has ended", func(t *testing.T, f *fleet) {
		var late error
		f.start("a", executor.Options{}, 1, func(ctx context.Context, r *executor.Run) error {
			<-ctx.Done()
			late = r.Checkpoint(context.WithoutCancel(ctx), []byte("late"))
			return context.Cause(ctx)
		})
		until(1)
		heal := f.server.Partition("a")
		time.Sleep(time.Minute)
		heal()
		synctest.Wait()
		assert.ErrorIs(t, late, executor.ErrRunOver)
		assert.ErrorIs(t, late, executor.ErrSessionLost)
	})
	t.Run("of a Run written by hand is kept in the Run", func(t *testing.T) {
		r := &executor.Run{}
		data, err := r.Resume(t.Context())
		require.NoError(t, err)
		assert.Nil(t, data)
		require.NoError(t, r.Checkpoint(t.Context(), []byte("7")))
		data, err = r.Resume(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "7", string(data))
	})
}

func TestYield(t *testing.T) {
	// asked runs a long run, has somebody wait for it, and reports when it was asked to yield.
	asked := func(t *testing.T, f *fleet, act func(e *executor.Executor)) time.Duration {
		var after atomic.Int64
		handle := func(ctx context.Context, r *executor.Run) error {
			select {
			case <-r.Yield():
				after.Store(int64(time.Since(r.FireTime)))
			case <-time.After(50 * time.Second):
			}
			return ctx.Err()
		}
		e := f.start("a", executor.Options{}, 2, handle)
		until(1)
		act(e)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		return time.Duration(after.Load())
	}
	for name, act := range map[string]func(t *testing.T, f *fleet, e *executor.Executor) error{
		"a drain": func(_ *testing.T, _ *fleet, e *executor.Executor) error {
			go e.Shutdown(context.Background())
			return nil
		},
		"a move": func(_ *testing.T, f *fleet, _ *executor.Executor) error {
			e := f.executor("b", executor.Options{}, 2, takes(0))
			return e.Start(context.Background())
		},
		"a pause": func(t *testing.T, _ *fleet, e *executor.Executor) error {
			return e.Operator().Pause(t.Context(), "job")
		},
		"a disabled shard": func(t *testing.T, _ *fleet, e *executor.Executor) error {
			return e.Operator().Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{0, 1}})
		},
		"a new definition": func(_ *testing.T, f *fleet, e *executor.Executor) error {
			job := f.job(3, takes(0))
			job.Revision = 1
			return e.Register(job)
		},
	} {
		bubble(t, name+" closes the channel of a run that has begun", func(t *testing.T, f *fleet) {
			after := asked(t, f, func(e *executor.Executor) { require.NoError(t, act(t, f, e)) })
			assert.GreaterOrEqual(t, after, time.Second)
			assert.Less(t, after, 10*time.Second)
		})
	}
	bubble(t, "a drain closes the channel of a run that waited for a worker", func(t *testing.T, f *fleet) {
		var begun, asked []time.Time
		handle := func(ctx context.Context, r *executor.Run) error {
			begun = append(begun, time.Now())
			if len(begun) == 1 {
				time.Sleep(5 * time.Second)
				return nil
			}
			select {
			case <-r.Yield():
				asked = append(asked, time.Now())
			case <-time.After(time.Minute):
			}
			return nil
		}
		e := f.executor("a", executor.Options{}, 1, takes(0))
		job := f.job(2, handle)
		job.Name, job.MaxRunning = "narrow", 1
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		until(1)
		go e.Shutdown(context.Background())
		pass(30 * time.Second)
		require.Len(t, begun, 2)
		assert.Equal(t, begun[1:], asked)
	})
	bubble(t, "a drain closes the channel of a run whose claim it overtook", func(t *testing.T, f *fleet) {
		var begun, asked []time.Time
		handle := func(ctx context.Context, r *executor.Run) error {
			begun = append(begun, time.Now())
			select {
			case <-r.Yield():
				asked = append(asked, time.Now())
			case <-time.After(time.Minute):
			}
			return nil
		}
		e := f.start("a", executor.Options{}, 1, handle)
		time.Sleep(time.Until(minute(1).Add(-time.Second)))
		f.server.Delay("a", 0, 500*time.Millisecond)
		time.Sleep(1200 * time.Millisecond)
		go e.Shutdown(context.Background())
		pass(30 * time.Second)
		require.Len(t, begun, 1)
		assert.Equal(t, begun, asked)
	})
	// returned runs a handler that counts to 5 and returns err when it is asked to yield.
	returned := func(t *testing.T, f *fleet, change func(*executor.Job), act func(e *executor.Executor)) []string {
		var steps []string
		count := counting(f, &steps)
		handle := func(ctx context.Context, r *executor.Run) error {
			if err := count(ctx, r); err != nil {
				return err
			}
			select {
			case <-r.Yield():
				return fmt.Errorf("after a step: %w", executor.ErrYield)
			default:
				return nil
			}
		}
		var first *executor.Executor
		for _, name := range []string{"a", "b"} {
			e := f.executor(name, executor.Options{}, 1, handle)
			job := f.job(1, handle)
			change(&job)
			require.NoError(t, e.Register(job))
			require.NoError(t, e.Start(t.Context()))
			if first == nil {
				first = e
			}
			time.Sleep(time.Second)
		}
		until(1)
		time.Sleep(1500 * time.Millisecond)
		act(first)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		return steps
	}
	unchanged := func(*executor.Job) {}
	bubble(t, "answered by ErrYield hands the run back, and the next owner goes on at once", func(t *testing.T, f *fleet) {
		steps := returned(t, f, unchanged, func(e *executor.Executor) { go e.Shutdown(context.Background()) })
		assert.Equal(t, []string{"a1", "a2", "b3", "b4", "b5"}, steps)
		assert.Zero(t, f.status().Counts.Failed)
	})
	bubble(t, "answered by ErrYield has the run go on when the shard is enabled again", func(t *testing.T, f *fleet) {
		steps := returned(t, f, unchanged, func(e *executor.Executor) {
			s := operator.Scope{Job: "job", Shards: []int{0}}
			require.NoError(t, e.Operator().Disable(t.Context(), s))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.EqualValues(t, 1, f.status().Counts.Claimed)
			require.NoError(t, e.Operator().Enable(t.Context(), s))
		})
		assert.Equal(t, []string{"a1", "a2", "a3", "a4", "a5"}, steps)
	})
	bubble(t, "answered by ErrYield leaves the rest to the first fire after a pause", func(t *testing.T, f *fleet) {
		steps := returned(t, f, unchanged, func(e *executor.Executor) {
			require.NoError(t, e.Operator().Pause(t.Context(), "job"))
			time.Sleep(10 * time.Second)
			require.NoError(t, e.Operator().Resume(t.Context(), "job"))
		})
		assert.Equal(t, []string{"a1", "a2"}, steps)
		assert.EqualValues(t, 1, f.status().Counts.Succeeded)
	})
	for name, change := range map[string]func(*executor.Job){
		"CountAsFailed": func(j *executor.Job) { j.OnCrash = executor.CountAsFailed },
		"TrackClaims":   func(j *executor.Job) { j.Tracking = executor.TrackClaims },
	} {
		bubble(t, "answered by ErrYield ends the run with success in a job with "+name, func(t *testing.T, f *fleet) {
			steps := returned(t, f, change, func(e *executor.Executor) { go e.Shutdown(context.Background()) })
			assert.Equal(t, []string{"a1", "a2"}, steps)
			assert.Zero(t, f.status().Counts.Failed)
		})
	}
	bubble(t, "comes when another definition is in force, which then makes the rest", func(t *testing.T, f *fleet) {
		steps := returned(t, f, unchanged, func(e *executor.Executor) {
			job := f.job(1, takes(0))
			job.Revision = 1
			require.NoError(t, e.Register(job))
		})
		assert.Equal(t, []string{"a1", "a2", "a3", "a4", "a5"}, steps)
		assert.EqualValues(t, 1, f.status().Counts.Succeeded)
	})
	bubble(t, "that was not asked for makes ErrYield an error like any other", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 1, func(context.Context, *executor.Run) error { return executor.ErrYield })
		until(1)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
	})
	bubble(t, "nobody waits for: the channel stays open", func(t *testing.T, f *fleet) {
		assert.Zero(t, asked(t, f, func(*executor.Executor) {}))
	})
	t.Run("of a Run written by hand never closes", func(t *testing.T) { assert.Nil(t, (&executor.Run{}).Yield()) })
}

func TestRun_Logger(t *testing.T) {
	bubble(t, "has the attributes of the run and of the executor", func(t *testing.T, f *fleet) {
		var text bytes.Buffer
		f.start("a", executor.Options{Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError}))}, 1,
			func(_ context.Context, r *executor.Run) error {
				r.Logger().Error("from the handler")
				r.SetTraceID("7f")
				r.Logger().Error("from a trace")
				return nil
			})
		until(1)
		assert.Contains(t, text.String(), `msg="from the handler" namespace=test group=default instance=a job=job shard=0 run=test/default/job/0/2000-01-01T00:01:00Z/1 attempt=1`)
		assert.Contains(t, text.String(), `msg="from a trace" namespace=test group=default instance=a job=job shard=0 run=test/default/job/0/2000-01-01T00:01:00Z/1 attempt=1 trace_id=7f`)
	})
	t.Run("of a Run written by hand is derived from the default", func(t *testing.T) {
		var r executor.Run
		r.SetTraceID("7f")
		assert.NotNil(t, r.Logger())
	})
}
