package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// batches records the calls of the function of Together.
type batches struct {
	mu    sync.Mutex
	calls []batchCall
}

// batchCall is a call of the function of Together.
type batchCall struct {
	at    time.Time
	runs  []executor.RunInfo
	cause error // of the end of the context, if it had ended when the function returned
}

// text returns the call as "INSTANCE SHARDS#ATTEMPT@SECOND".
func (c batchCall) text() string {
	first := c.runs[0]
	return fmt.Sprintf("%s %v#%d@%v", first.Instance, c.shards(), first.Attempt, c.at.Sub(first.FireTime))
}

func (c batchCall) shards() (all []int) {
	for _, r := range c.runs {
		all = append(all, r.Shard)
	}
	return all
}

// together returns Together(f), and records its calls.
func (l *batches) together(f func(ctx context.Context, b *executor.Batch) error) executor.Handler {
	return executor.Together(func(ctx context.Context, b *executor.Batch) error {
		c := batchCall{at: time.Now()}
		for _, r := range b.Runs {
			c.runs = append(c.runs, r.RunInfo)
		}
		l.mu.Lock()
		i := len(l.calls)
		l.calls = append(l.calls, c)
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls[i].cause = context.Cause(ctx)
		}()
		return f(ctx, b)
	})
}

// of returns the calls for a fire, the zero time for all, in the order of their begin and then their first shard.
func (l *batches) of(fire time.Time) (calls []batchCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if fire.IsZero() || c.runs[0].FireTime.Equal(fire) {
			calls = append(calls, c)
		}
	}
	slices.SortStableFunc(calls, func(a, b batchCall) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.runs[0].Shard - b.runs[0].Shard
	})
	return calls
}

func (l *batches) texts(fire time.Time) (all []string) {
	for _, c := range l.of(fire) {
		all = append(all, c.text())
	}
	return all
}

// batched is a promise of Together, for a fleet that records its batches.
func batched(t *testing.T, name string, f func(t *testing.T, f *rotatest.Fleet, l *batches)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		rotatest.Run(t, func(fleet *rotatest.Fleet) { f(t, fleet, &batches{}) })
	})
}

// minutely is a job of which the batches last so long, or until their context ends.
func (l *batches) minutely(shards int, f func(ctx context.Context, b *executor.Batch) error) executor.Job {
	return executor.Job{Name: "job", Schedule: schedule.Every(time.Minute), Shards: shards, Handler: l.together(f)}
}

// lasts returns a function that succeeds after d, or returns the cause of its context.
func lasts(d time.Duration) func(context.Context, *executor.Batch) error {
	return func(ctx context.Context, _ *executor.Batch) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// outcomes collects the outcomes of runs, by shard, in their order.
type outcomes struct {
	mu  sync.Mutex
	all map[int][]executor.Outcome
}

func (o *outcomes) observer() executor.Observer {
	return executor.Observer{RunEnded: func(e executor.RunEnded) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.all == nil {
			o.all = map[int][]executor.Outcome{}
		}
		o.all[e.Run.Shard] = append(o.all[e.Run.Shard], e.Outcome)
	}}
}

func (o *outcomes) get() map[int][]executor.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.all)
}

// atFirst returns a function that is f for the first fire, and returns nil for others.
func atFirst(f func(ctx context.Context, b *executor.Batch) error) func(context.Context, *executor.Batch) error {
	var mu sync.Mutex
	var first time.Time
	return func(ctx context.Context, b *executor.Batch) error {
		mu.Lock()
		if first.IsZero() {
			first = b.Runs[0].FireTime
		}
		isFirst := first.Equal(b.Runs[0].FireTime)
		mu.Unlock()
		if isFirst {
			return f(ctx, b)
		}
		return nil
	}
}

func TestTogether_Batches(t *testing.T) {
	batched(t, "all shards that the instance owns are one batch, each with its own data", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(5, lasts(time.Second))
		job.ShardParams = map[int]string{1: "Shanghai", 4: "Beijing"}
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Settle()
		calls := l.of(fire)
		require.Len(t, calls, 1)
		assert.Equal(t, "a [0 1 2 3 4]#1@0s", calls[0].text())
		for i, r := range calls[0].runs {
			assert.Equal(t, job.ShardParams[i], r.ShardParam)
			assert.Equal(t, calls[0].runs[0].Fence, r.Fence, "of the commit")
			assert.Contains(t, r.Key, fmt.Sprintf("/job/%d/", i))
		}
		assert.Len(t, f.Runs("job"), 5, "middleware sees each run")
	})
	batched(t, "each instance has its own", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(4, lasts(time.Second))
		f.Start("a", job)
		f.Start("b", job)
		fire := f.NextFire("job")
		f.Settle()
		assert.Equal(t, []string{"a [0 1]#1@0s", "b [2 3]#1@0s"}, l.texts(fire))
	})
	batched(t, "a trigger of some shards is a batch of these", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(5, lasts(time.Second))
		job.Schedule = schedule.Schedule{}
		f.Start("a", job)
		f.Trigger("job", executor.Trigger{Param: "now", Shards: []int{1, 3}})
		f.Settle()
		calls := l.of(time.Time{})
		require.Len(t, calls, 1)
		assert.Equal(t, []int{1, 3}, calls[0].shards())
		assert.Equal(t, "now", calls[0].runs[1].Param)
	})
	batched(t, "a shard that is busy when the fire comes due follows alone, and delays no other", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		f.Start("a", l.minutely(3, func(ctx context.Context, b *executor.Batch) error {
			for _, r := range b.Runs[1:] {
				assert.NoError(t, b.End(r.Shard, nil))
			}
			if b.Runs[0].Shard == 0 && len(b.Runs) == 3 {
				time.Sleep(80 * time.Second)
			}
			return nil
		}))
		first := f.NextFire("job")
		second := f.NextFire("job")
		f.Sleep(30 * time.Second)
		assert.Equal(t, []string{"a [0 1 2]#1@0s"}, l.texts(first))
		assert.Equal(t, []string{"a [1 2]#1@0s", "a [0]#1@20s"}, l.texts(second))
	})
	batched(t, "shards that fail over are a batch of their own, beside that of the new owner", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(6, lasts(40*time.Second))
		f.Start("a", job)
		f.Start("b", job)
		fire := f.NextFire("job")
		f.Crash("b")
		f.Settle()
		calls := l.of(fire)
		require.Len(t, calls, 3)
		assert.Equal(t, []int{3, 4, 5}, calls[2].shards())
		assert.Equal(t, "a", calls[2].runs[0].Instance)
		assert.Equal(t, 2, calls[2].runs[0].Attempt)
		assert.Less(t, calls[2].at.Sub(fire), 40*time.Second, "while the other batch lasts")
	})
	batched(t, "with Spread, a run that starts after its fire is a batch", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(4, lasts(time.Second))
		job.Schedule = job.Schedule.Spread(20 * time.Second)
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(30 * time.Second)
		assert.Len(t, l.of(fire), 4)
	})
	batched(t, "within another Handler, each has one run", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(3, lasts(time.Second))
		job.Handler = executor.HandlerFunc(job.Handler.Handle)
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Settle()
		assert.Equal(t, []string{"a [0]#1@0s", "a [1]#1@0s", "a [2]#1@0s"}, l.texts(fire))
	})
	bubble(t, "ten thousand shards are one call", func(t *testing.T, f *fleet) {
		var l batches
		e := f.executor("a", executor.Options{}, 10_000, takes(0))
		job := f.job(10_000, nil)
		job.Handler = l.together(lasts(time.Second))
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		until(1)
		pass(5 * time.Second)
		calls := l.of(minute(1))
		require.Len(t, calls, 1)
		assert.Len(t, calls[0].runs, 10_000)
		assert.EqualValues(t, 10_000, f.status().Counts.Succeeded)
	})
}

func TestTogether_Results(t *testing.T) {
	for _, c := range []struct {
		name string
		left func() error
		want executor.Outcome
	}{
		{"nil succeeds the runs that End has not ended", func() error { return nil }, executor.Succeeded},
		{"an error fails the runs that End has not ended", func() error { return errors.New("no table") }, executor.Failed},
		{"a panic fails the runs that End has not ended", func() error { panic("no table") }, executor.Panicked},
		{"Goexit fails the runs that End has not ended", func() error { runtime.Goexit(); return nil }, executor.Failed},
	} {
		batched(t, c.name, func(t *testing.T, f *rotatest.Fleet, l *batches) {
			var o outcomes
			f.Options.Observer = o.observer()
			e := f.Start("a", l.minutely(4, atFirst(func(_ context.Context, b *executor.Batch) error {
				assert.NoError(t, b.End(1, nil))
				assert.NoError(t, b.End(2, errors.New("bad row")))
				return c.left()
			})))
			f.NextFire("job")
			f.Settle()
			assert.Equal(t, map[int][]executor.Outcome{0: {c.want}, 1: {executor.Succeeded}, 2: {executor.Failed}, 3: {c.want}}, o.get())
			st, err := e.Operator().Status(t.Context(), "job")
			require.NoError(t, err)
			assert.EqualValues(t, 4, st.Counts.Succeeded+st.Counts.Failed)
		})
	}
	batched(t, "a run has ended for events and for its next fire when End has been called, though the function goes on", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var mu sync.Mutex
		took := map[int]time.Duration{}
		f.Options.Observer = executor.Observer{RunEnded: func(e executor.RunEnded) {
			mu.Lock()
			defer mu.Unlock()
			if e.Run.Attempt == 1 && took[e.Run.Shard] == 0 {
				took[e.Run.Shard] = e.Ended.Sub(e.Started)
			}
		}}
		f.Start("a", l.minutely(2, func(_ context.Context, b *executor.Batch) error {
			time.Sleep(time.Second)
			assert.NoError(t, b.End(b.Runs[0].Shard, nil))
			if len(b.Runs) == 2 {
				time.Sleep(89 * time.Second)
			}
			return nil
		}))
		f.NextFire("job")
		second := f.NextFire("job")
		f.Sleep(50 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, map[int]time.Duration{0: time.Second, 1: 90 * time.Second}, took)
		assert.Equal(t, []string{"a [0]#1@0s", "a [1]#1@30s"}, l.texts(second))
	})
	batched(t, "a run that failed alone is retried alone, and those that failed together without jitter are retried together", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(4, func(_ context.Context, b *executor.Batch) error {
			if b.Runs[0].Attempt > 1 {
				return nil
			}
			assert.NoError(t, b.End(2, executor.RetryAfter(20*time.Second, errors.New("busy"))))
			assert.NoError(t, b.End(3, executor.Permanent(errors.New("never"))))
			return errors.New("later")
		})
		job.Retry = executor.Retry{Max: 1, Initial: 10 * time.Second, Jitter: -1}
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(40 * time.Second)
		calls := l.of(fire)
		require.Len(t, calls, 3)
		assert.Equal(t, [][]int{{0, 1, 2, 3}, {0, 1}, {2}}, [][]int{calls[0].shards(), calls[1].shards(), calls[2].shards()})
	})
	batched(t, "an error after the end of all runs belongs to none of them, and is logged", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var log logbook
		f.Options.Logger = log.logger(slog.LevelInfo)
		e := f.Start("a", l.minutely(2, atFirst(func(_ context.Context, b *executor.Batch) error {
			assert.NoError(t, b.End(0, nil))
			assert.NoError(t, b.End(1, nil))
			return errors.New("close the cursor")
		})))
		f.NextFire("job")
		f.Settle()
		st, err := e.Operator().Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, st.Counts.Failed)
		assert.Len(t, log.lines("handler failed after it had ended all runs of its batch", "close the cursor"), 1)
	})
	batched(t, "the last run lasts as long as the function, with the result that End was given", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		e := f.Start("a", l.minutely(2, atFirst(func(_ context.Context, b *executor.Batch) error {
			assert.NoError(t, b.End(1, nil))
			assert.NoError(t, b.End(0, errors.New("bad row")))
			time.Sleep(10 * time.Second)
			return nil
		})))
		f.NextFire("job")
		f.Sleep(5 * time.Second)
		assert.Equal(t, 1, e.Stats().Running)
		f.Sleep(10 * time.Second)
		assert.Zero(t, e.Stats().Running)
		st, err := e.Operator().Status(t.Context(), "job")
		require.NoError(t, err)
		assert.EqualValues(t, 1, st.Counts.Failed)
	})
}

func TestTogether_BadCalls(t *testing.T) {
	batched(t, "of End change nothing, and name shard and rule", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		var kept *executor.Batch
		f.Start("a", l.minutely(3, atFirst(func(_ context.Context, b *executor.Batch) error {
			kept = b
			assert.NoError(t, b.End(1, nil))
			err := b.End(1, errors.New("again"))
			assert.ErrorIs(t, err, executor.ErrRunOver)
			assert.EqualError(t, err, "end shard 1: run over: End has been called for it before")
			err = b.End(7, nil)
			assert.ErrorIs(t, err, executor.ErrInvalidArgument)
			assert.EqualError(t, err, "shard 7: "+executor.ErrInvalidArgument.Error()+": its run is not in the batch")
			assert.ErrorIs(t, context.Cause(b.Context(7)), executor.ErrInvalidArgument)
			assert.Equal(t, map[int]error{1: nil}, b.Ended())
			return nil
		})))
		f.NextFire("job")
		f.Settle()
		err := kept.End(2, errors.New("late"))
		assert.ErrorIs(t, err, executor.ErrRunOver)
		assert.EqualError(t, err, "end shard 2: run over: the function of its batch has returned")
		assert.Equal(t, map[int][]executor.Outcome{0: {executor.Succeeded}, 1: {executor.Succeeded}, 2: {executor.Succeeded}}, o.get())
	})
	t.Run("a nil function is refused", func(t *testing.T) {
		err := registerJob(t, executor.Job{Name: "job", Handler: executor.Together(nil)})
		assert.EqualError(t, err, `invalid job "job": Handler: the function given to Together is nil`)
	})
}

func TestTogether_Contexts(t *testing.T) {
	batched(t, "a time-out ends those of all runs and of the batch, with ErrTimeout", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		job := l.minutely(3, lasts(time.Hour))
		job.Timeout = 10 * time.Second
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(20 * time.Second)
		calls := l.of(fire)
		require.Len(t, calls, 1)
		assert.ErrorIs(t, calls[0].cause, executor.ErrTimeout)
		for shard := range 3 {
			assert.Equal(t, []executor.Outcome{executor.TimedOut}, o.get()[shard])
		}
	})
	batched(t, "a cancel of one shard ends its own alone", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		e := f.Start("a", l.minutely(3, atFirst(func(ctx context.Context, b *executor.Batch) error {
			<-b.Context(1).Done()
			assert.NoError(t, ctx.Err())
			assert.NoError(t, b.Context(0).Err())
			assert.NoError(t, b.End(1, context.Cause(b.Context(1))))
			time.Sleep(time.Second)
			return ctx.Err()
		})))
		f.NextFire("job")
		f.Sleep(time.Second)
		_, err := e.Operator().Cancel(t.Context(), "job", 1)
		require.NoError(t, err)
		f.Settle()
		assert.Equal(t, map[int][]executor.Outcome{0: {executor.Succeeded}, 1: {executor.Cancelled}, 2: {executor.Succeeded}}, o.get())
	})
	batched(t, "a cancel of the whole fire ends that of the batch, with ErrCancelled", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		e := f.Start("a", l.minutely(3, atFirst(func(ctx context.Context, b *executor.Batch) error {
			assert.NoError(t, b.End(2, nil)) // which no cancel can reach
			return lasts(50*time.Second)(ctx, b)
		})))
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		_, err := e.Operator().Cancel(t.Context(), "job")
		require.NoError(t, err)
		f.Settle()
		assert.ErrorIs(t, l.of(fire)[0].cause, executor.ErrCancelled)
		assert.Equal(t, map[int][]executor.Outcome{0: {executor.Cancelled}, 1: {executor.Cancelled}, 2: {executor.Succeeded}}, o.get())
	})
	batched(t, "that of the batch ends when the last live run is ended, if those of the others have ended", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		e := f.Start("a", l.minutely(2, atFirst(func(ctx context.Context, b *executor.Batch) error {
			<-b.Context(1).Done()
			time.Sleep(time.Second)
			assert.NoError(t, ctx.Err())
			assert.NoError(t, b.End(0, nil))
			<-ctx.Done()
			return context.Cause(ctx)
		})))
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		_, err := e.Operator().Cancel(t.Context(), "job", 1)
		require.NoError(t, err)
		f.Settle()
		assert.ErrorIs(t, l.of(fire)[0].cause, executor.ErrCancelled)
	})
	batched(t, "a due fire with CancelRunning ends them with ErrOverlap, and the shards run it together", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(3, lasts(90*time.Second))
		job.OnOverlap = executor.CancelRunning
		f.Start("a", job)
		first := f.NextFire("job")
		second := f.NextFire("job")
		f.Sleep(time.Second)
		assert.ErrorIs(t, l.of(first)[0].cause, executor.ErrOverlap)
		assert.Equal(t, [][]int{{0, 1, 2}}, [][]int{l.of(second)[0].shards()})
	})
	batched(t, "a lost session ends them with ErrSessionLost, and the runs are made again elsewhere", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		job := l.minutely(4, lasts(30*time.Second))
		f.Start("a", job)
		f.Start("b", job)
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		heal := f.Partition("b")
		f.Sleep(20 * time.Second)
		heal()
		f.Settle()
		calls := l.of(fire)
		require.Len(t, calls, 3)
		assert.ErrorIs(t, calls[1].cause, executor.ErrSessionLost)
		assert.Equal(t, []int{2, 3}, calls[2].shards())
		assert.Equal(t, executor.LostSession, o.get()[2][0])
	})
	batched(t, "the function's has the values of the first run's context, and each run's its own", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		type key struct{}
		var got []any
		job := l.minutely(2, func(ctx context.Context, b *executor.Batch) error {
			got = []any{ctx.Value(key{}), b.Context(0).Value(key{}), b.Context(1).Value(key{})}
			return nil
		})
		job.Middleware = []executor.Middleware{func(next executor.Handler) executor.Handler {
			return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				return next.Handle(context.WithValue(ctx, key{}, r.Shard), r)
			})
		}}
		f.Start("a", job)
		f.NextFire("job")
		f.Settle()
		assert.Equal(t, []any{0, 0, 1}, got)
	})
}

func TestTogether_Moves(t *testing.T) {
	batched(t, "a shard that is to move is asked alone to yield, and moves while the batch lasts", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var ended time.Time
		job := l.minutely(2, atFirst(func(ctx context.Context, b *executor.Batch) error {
			if len(b.Runs) == 1 {
				return nil
			}
			select {
			case <-b.Runs[0].Yield():
				t.Error("shard 0 stays")
			case <-b.Runs[1].Yield():
			}
			assert.NoError(t, b.Runs[1].Checkpoint(ctx, []byte("half")))
			assert.NoError(t, b.End(1, executor.ErrYield))
			time.Sleep(20 * time.Second)
			ended = time.Now()
			return nil
		}))
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		f.Start("b", job)
		f.Settle()
		calls := l.of(fire)
		require.Len(t, calls, 2)
		assert.Equal(t, []string{"b", "[1]", "2"}, []string{calls[1].runs[0].Instance, fmt.Sprint(calls[1].shards()), fmt.Sprint(calls[1].runs[0].Attempt)})
		assert.True(t, calls[1].at.Before(ended))
	})
	batched(t, "a drain hands back what is left at its deadline, as one batch for the next owner", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		f.Options.DrainTimeout = 5 * time.Second
		job := l.minutely(4, atFirst(func(ctx context.Context, b *executor.Batch) error {
			if b.Runs[0].Attempt > 1 {
				return nil
			}
			assert.NoError(t, b.End(1, nil))
			return lasts(time.Hour)(ctx, b)
		}))
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		f.Start("b", job)
		f.Stop("a")
		f.Settle()
		calls := l.of(fire)
		require.Len(t, calls, 2)
		assert.ErrorIs(t, calls[0].cause, executor.ErrDraining)
		assert.Equal(t, []string{"b", "[0 2 3]", "2"}, []string{calls[1].runs[0].Instance, fmt.Sprint(calls[1].shards()), fmt.Sprint(calls[1].runs[0].Attempt)})
		assert.Equal(t, []executor.Outcome{executor.Succeeded}, o.get()[1])
		assert.Equal(t, []executor.Outcome{executor.HandedBack, executor.Succeeded}, o.get()[0])
	})
	bubble(t, "a function that ignores its context is abandoned with the runs that it has not ended", func(t *testing.T, f *fleet) {
		over := make(chan struct{})
		e := f.executor("a", executor.Options{DrainTimeout: time.Second}, 3, takes(0))
		job := f.job(3, nil)
		job.Handler = executor.Together(func(_ context.Context, b *executor.Batch) error {
			assert.NoError(t, b.End(1, nil))
			<-over
			return nil
		})
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		until(1)
		var abandoned *executor.AbandonedError
		require.ErrorAs(t, e.Shutdown(t.Context()), &abandoned)
		assert.Equal(t, []string{"test/default/job/0/2000-01-01T00:01:00Z/1", "test/default/job/2/2000-01-01T00:01:00Z/1"}, abandoned.Runs)
		close(over)
		<-e.Done()
	})
	batched(t, "with Always, the runs of shards that are to move end alone", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(4, func(ctx context.Context, b *executor.Batch) error {
			var all sync.WaitGroup
			for _, r := range b.Runs {
				all.Go(func() {
					<-b.Context(r.Shard).Done()
					assert.NoError(t, b.End(r.Shard, context.Cause(b.Context(r.Shard))))
				})
			}
			all.Wait()
			return nil
		})
		job.Schedule = schedule.Always()
		f.Start("a", job)
		f.Sleep(time.Second)
		f.Start("b", job)
		f.Sleep(10 * time.Second)
		calls := l.of(time.Time{})
		assert.Equal(t, []int{0, 1, 2, 3}, calls[0].shards())
		assert.NoError(t, calls[0].cause, "shards 0 and 1 go on")
		var moved []int
		for _, c := range calls[1:] {
			assert.Equal(t, "b", c.runs[0].Instance)
			moved = append(moved, c.shards()...)
		}
		assert.ElementsMatch(t, []int{2, 3}, moved)
	})
}

func TestTogether_Bounds(t *testing.T) {
	batched(t, "MaxRunning and Workers count a batch as one run", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		f.Options.Workers = 1
		job := l.minutely(5, lasts(10*time.Second))
		job.MaxRunning = 1
		e := f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		assert.Equal(t, []string{"a [0 1 2 3 4]#1@0s"}, l.texts(fire))
		assert.Equal(t, executor.JobStats{Owned: 5, Running: 5, NextFire: fire.Add(time.Minute)}, e.Stats().Jobs["job"])
	})
	batched(t, "a batch that waits for a worker waits with all its shards, and later begins with all", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(3, lasts(30*time.Second))
		job.MaxRunning = 1
		job.Schedule = schedule.Schedule{}
		e := f.Start("a", job)
		f.Trigger("job", executor.Trigger{Shards: []int{0}})
		f.Sleep(time.Second)
		f.Trigger("job", executor.Trigger{Shards: []int{1, 2}})
		f.Sleep(time.Second)
		assert.Equal(t, []int{1, 2}, e.Waiting()["job"].Shards)
		assert.Equal(t, 2, e.Stats().Waiting)
		assert.Equal(t, 1, e.Stats().Running)
		f.Settle()
		calls := l.of(time.Time{})
		require.Len(t, calls, 2)
		assert.Equal(t, []int{1, 2}, calls[1].shards())
		assert.Zero(t, e.Stats().Waiting)
	})
	batched(t, "a cancelled run of a waiting batch is left out", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(4, lasts(30*time.Second))
		job.MaxRunning = 1
		job.Schedule = schedule.Schedule{}
		e := f.Start("a", job)
		f.Trigger("job", executor.Trigger{Shards: []int{0}})
		f.Sleep(time.Second)
		f.Trigger("job", executor.Trigger{Shards: []int{1, 2, 3}})
		f.Sleep(time.Second)
		_, err := e.Operator().Cancel(t.Context(), "job", 2)
		require.NoError(t, err)
		f.Settle()
		assert.Equal(t, []int{1, 3}, l.of(time.Time{})[1].shards())
	})
	batched(t, "a batch that waits when another handler is registered runs with that one, within the bound", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(4, lasts(30*time.Second))
		job.MaxRunning = 1
		job.Schedule = schedule.Schedule{}
		e := f.Start("a", job)
		f.Trigger("job", executor.Trigger{Shards: []int{0}})
		f.Sleep(time.Second)
		f.Trigger("job", executor.Trigger{Shards: []int{1, 2, 3}})
		f.Sleep(time.Second)
		var mu sync.Mutex
		var alone []int
		job.Handler = executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			mu.Lock()
			alone = append(alone, r.Shard)
			mu.Unlock()
			if r.Shard == 1 {
				runtime.Goexit()
			}
			time.Sleep(time.Second)
			assert.Equal(t, 1, e.Stats().Running)
			return nil
		})
		f.Register("a", job)
		f.Settle()
		assert.Len(t, l.of(time.Time{}), 1)
		assert.Equal(t, []int{1, 2, 3}, alone)
	})
}

func TestTogether_Middleware(t *testing.T) {
	batched(t, "that refuses a run leaves it out of the batch", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		var o outcomes
		f.Options.Observer = o.observer()
		job := l.minutely(3, lasts(time.Second))
		job.Middleware = []executor.Middleware{func(next executor.Handler) executor.Handler {
			return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				if r.Shard == 2 {
					time.Sleep(100 * time.Millisecond)
					return errors.New("closed")
				}
				return next.Handle(ctx, r)
			})
		}}
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Settle()
		assert.Equal(t, []string{"a [0 1]#1@100ms"}, l.texts(fire))
		assert.Equal(t, map[int][]executor.Outcome{0: {executor.Succeeded}, 1: {executor.Succeeded}, 2: {executor.Failed}}, o.get())
	})
	batched(t, "that is slow delays the batch by a second at most", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(3, lasts(time.Second))
		job.Middleware = []executor.Middleware{func(next executor.Handler) executor.Handler {
			return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				if r.Shard == 1 {
					time.Sleep(5 * time.Second)
				}
				return next.Handle(ctx, r)
			})
		}}
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Settle()
		assert.Equal(t, []string{"a [0 2]#1@1s", "a [1]#1@5s"}, l.texts(fire))
	})
	batched(t, "that lets two runs pass at a time stops no run", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		free := make(chan struct{}, 2)
		job := l.minutely(5, lasts(time.Second))
		job.Middleware = []executor.Middleware{func(next executor.Handler) executor.Handler {
			return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				free <- struct{}{}
				defer func() { <-free }()
				return next.Handle(ctx, r)
			})
		}}
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Settle()
		var shards []int
		for _, c := range l.of(fire) {
			assert.LessOrEqual(t, len(c.runs), 2)
			shards = append(shards, c.shards()...)
		}
		assert.ElementsMatch(t, []int{0, 1, 2, 3, 4}, shards)
	})
	batched(t, "that calls the handler again gets a batch of that run", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		tries := 0
		job := l.minutely(3, atFirst(func(_ context.Context, b *executor.Batch) error {
			if tries++; tries == 1 {
				assert.NoError(t, b.End(1, errors.New("first")))
			}
			return nil
		}))
		job.Middleware = []executor.Middleware{func(next executor.Handler) executor.Handler {
			return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				if err := next.Handle(ctx, r); err == nil {
					return nil
				}
				return next.Handle(ctx, r)
			})
		}}
		e := f.Start("a", job)
		fire := f.NextFire("job")
		f.Settle()
		assert.Equal(t, []string{"a [0 1 2]#1@0s", "a [1]#1@0s"}, l.texts(fire))
		st, err := e.Operator().Status(t.Context(), "job")
		require.NoError(t, err)
		assert.Zero(t, st.Counts.Failed)
	})
}

func TestTogether_Records(t *testing.T) {
	bubble(t, "each run has its own checkpoints, log and counts", func(t *testing.T, f *fleet) {
		var log logbook
		items := map[int]int64{}
		f.observe = executor.Observer{RunEnded: func(e executor.RunEnded) { items[e.Run.Shard] += e.ItemsProcessed }}
		e := f.executor("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, 3, takes(0))
		job := f.job(3, nil)
		var mu sync.Mutex
		resumed := map[int]string{} // by the last batch
		last := func() map[int]string {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(resumed)
		}
		job.Handler = executor.Together(func(ctx context.Context, b *executor.Batch) error {
			for _, r := range b.Runs {
				data, err := r.Resume(ctx)
				assert.NoError(t, err)
				mu.Lock()
				resumed[r.Shard] = string(data)
				mu.Unlock()
				assert.NoError(t, r.Checkpoint(ctx, fmt.Appendf(nil, "of shard %d", r.Shard)))
				r.CountItems(r.Shard, r.Shard)
				r.Logger().Info("page done")
			}
			return nil
		})
		require.NoError(t, e.Register(job))
		require.NoError(t, e.Start(t.Context()))
		until(1)
		synctest.Wait()
		assert.Equal(t, map[int]string{0: "", 1: "", 2: ""}, last())
		until(2)
		synctest.Wait()
		assert.Equal(t, map[int]string{0: "of shard 0", 1: "of shard 1", 2: "of shard 2"}, last())
		assert.Equal(t, map[int]int64{0: 0, 1: 2, 2: 4}, items)
		for shard := range 3 {
			assert.Len(t, log.lines("page done", fmt.Sprintf("shard=%d", shard)), 2)
		}
	})
	batched(t, "writes of a run are refused once its end is reported", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		f.Start("a", l.minutely(2, atFirst(func(ctx context.Context, b *executor.Batch) error {
			assert.NoError(t, b.End(0, nil))
			time.Sleep(time.Second)
			assert.ErrorIs(t, b.Runs[0].Checkpoint(ctx, nil), executor.ErrRunOver)
			assert.Error(t, b.Context(0).Err())
			assert.NoError(t, b.Runs[1].Checkpoint(ctx, nil))
			return nil
		})))
		f.NextFire("job")
		f.Settle()
	})
}

func TestTogether_Crash(t *testing.T) {
	batched(t, "only the runs that End had not ended are made again, as one batch of the next owner", func(t *testing.T, f *rotatest.Fleet, l *batches) {
		job := l.minutely(6, atFirst(func(ctx context.Context, b *executor.Batch) error {
			if b.Runs[0].Attempt > 1 {
				return nil
			}
			assert.NoError(t, b.End(1, nil))
			assert.NoError(t, b.End(4, errors.New("bad row")))
			return lasts(time.Hour)(ctx, b)
		}))
		f.Start("a", job)
		fire := f.NextFire("job")
		f.Sleep(time.Second)
		f.Start("b", job)
		f.Crash("a")
		f.Settle()
		calls := l.of(fire)
		require.Len(t, calls, 2)
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, calls[0].shards())
		assert.Equal(t, []int{0, 2, 3, 5}, calls[1].shards())
		again := calls[1].runs[0]
		assert.Equal(t, []any{"b", 2, executor.Failover}, []any{again.Instance, again.Attempt, again.Reason})
		assert.Greater(t, again.Fence, calls[0].runs[0].Fence)
	})
}

func TestTogether_Literals(t *testing.T) {
	settle := func(ctx context.Context, b *executor.Batch) error {
		for _, r := range b.Runs {
			if err := b.Context(r.Shard).Err(); err != nil {
				return err
			}
			if r.ShardParam == "" {
				if err := b.End(r.Shard, errors.New("no region")); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}
	run := func(shard int, param string) *executor.Run {
		return &executor.Run{RunInfo: executor.RunInfo{Shard: shard, ShardParam: param}}
	}
	t.Run("of Batch record what End was given", func(t *testing.T) {
		b := &executor.Batch{Runs: []*executor.Run{run(3, ""), run(0, "Beijing"), run(1, "")}}
		assert.Empty(t, b.Ended())
		require.NoError(t, settle(t.Context(), b))
		assert.Equal(t, []int{1, 3}, slices.Sorted(maps.Keys(b.Ended())))
		assert.ErrorIs(t, b.End(1, nil), executor.ErrRunOver)
		assert.ErrorIs(t, b.End(2, nil), executor.ErrInvalidArgument)
		assert.NoError(t, b.End(0, nil))
		assert.Len(t, b.Ended(), 3)
	})
	t.Run("of Run are a batch of one", func(t *testing.T) {
		h := executor.Together(settle)
		assert.NoError(t, h.Handle(t.Context(), run(0, "Beijing")))
		assert.EqualError(t, h.Handle(t.Context(), run(0, "")), "no region")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, h.Handle(ended, run(0, "Beijing")), context.Canceled)
		var panicked *executor.PanicError
		err := executor.Together(func(context.Context, *executor.Batch) error { panic("no table") }).Handle(t.Context(), run(0, ""))
		require.ErrorAs(t, err, &panicked)
		assert.True(t, strings.Contains(string(panicked.Stack), "TestTogether_Literals"))
	})
}
