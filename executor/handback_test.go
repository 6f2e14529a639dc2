package executor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/operator"
)

// attempts returns the attempts at the fire of the n-th minute, by shard, and their reasons.
func (f *fleet) attempts(n int) map[int][]executor.Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[int][]executor.Run{}
	for _, r := range f.runs {
		if r.FireTime.Equal(minute(n)) {
			out[r.Shard] = append(out[r.Shard], r)
		}
	}
	return out
}

func (f *fleet) status() operator.Status {
	f.t.Helper()
	o, err := operator.New(f.server.Client("console"), "test", "")
	require.NoError(f.t, err)
	st, err := o.Status(f.t.Context(), "job")
	require.NoError(f.t, err)
	return st
}

// rolling shuts a member down at once and starts another, in the fleet of one job.
func (f *fleet) rolling(old *executor.Executor, name string, o executor.Options, shards int, handle executor.HandlerFunc) *executor.Executor {
	f.t.Helper()
	require.NoError(f.t, old.Shutdown(f.t.Context()))
	return f.start(name, o, shards, handle)
}

func TestHandBack(t *testing.T) {
	impatient := executor.Options{DrainTimeout: time.Second}

	bubble(t, "makes a run that the drain ended again elsewhere, at once and as no failure", func(t *testing.T, f *fleet) {
		a := f.start("a", impatient, 2, takes(20*time.Second))
		b := f.start("b", impatient, 2, takes(20*time.Second))
		until(1)
		require.NoError(t, a.Shutdown(t.Context()))
		time.Sleep(100 * time.Millisecond)
		runs := f.attempts(1)[0]
		require.Len(t, runs, 2)
		assert.Equal(t, []string{"a", "b"}, []string{runs[0].Instance, runs[1].Instance})
		assert.Equal(t, 2, runs[1].Attempt)
		assert.Equal(t, executor.Failover, runs[1].Reason)
		assert.Equal(t, runs[0].Key, runs[1].Key)
		assert.Greater(t, runs[1].Fence, runs[0].Fence)
		until(2)
		st := f.status()
		assert.EqualValues(t, 3, st.Counts.Claimed-uint64(len(f.began(2))))
		assert.Zero(t, st.Counts.Failed)
		assert.Zero(t, st.Counts.Lost)
		assert.EqualValues(t, 2, st.Counts.Succeeded)
		assert.Empty(t, st.Failures)
		assert.NoError(t, b.Shutdown(t.Context()))
	})
	bubble(t, "does not wait for another handler of the instance, which ignores its context", func(t *testing.T, f *fleet) {
		release := make(chan struct{})
		a := f.start("a", impatient, 2, func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 0 {
				<-release
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		until(1)
		f.start("b", executor.Options{}, 2, takes(time.Second))
		var abandoned *executor.AbandonedError
		require.ErrorAs(t, a.Shutdown(t.Context()), &abandoned)
		assert.Len(t, f.attempts(1)[1], 2)
		assert.Len(t, f.attempts(1)[0], 1)
		close(release)
		time.Sleep(time.Second)
		assert.Len(t, f.attempts(1)[0], 2)
	})
	bubble(t, "takes nil for success", func(t *testing.T, f *fleet) {
		a := f.start("a", impatient, 1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return nil
		})
		until(1)
		f.rolling(a, "b", executor.Options{}, 1, takes(0))
		assert.Len(t, f.attempts(1)[0], 1)
		assert.EqualValues(t, 1, f.status().Counts.Succeeded)
	})
	bubble(t, "takes a panic for a failure", func(t *testing.T, f *fleet) {
		a := f.start("a", impatient, 1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			panic("at the wrong time")
		})
		until(1)
		f.rolling(a, "b", executor.Options{}, 1, takes(0))
		assert.Len(t, f.attempts(1)[0], 1)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
	})
	bubble(t, "takes the end by a time-out for a failure", func(t *testing.T, f *fleet) {
		job := f.job(1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // the drain begins and ends contexts meanwhile
			return context.Cause(ctx)
		})
		job.Timeout, job.Revision = time.Second, 1
		a := f.start("a", impatient, 1, takes(0))
		require.NoError(t, a.Register(job))
		until(1)
		f.rolling(a, "b", executor.Options{}, 1, takes(0))
		assert.Len(t, f.attempts(1)[0], 1)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
	})
	for _, once := range []executor.Job{
		{OnCrash: executor.CountAsFailed}, {Tracking: executor.TrackClaims},
	} {
		bubble(t, fmt.Sprintf("fails a run that is not made again after a crash: %v, tracking %v", once.OnCrash, once.Tracking), func(t *testing.T, f *fleet) {
			job := f.job(2, takes(20*time.Second))
			job.OnCrash, job.Tracking = once.OnCrash, once.Tracking
			a := f.executor("a", executor.Options{DrainTimeout: time.Second, Workers: 1}, 2, takes(0))
			require.NoError(t, a.Register(job))
			require.NoError(t, a.Start(t.Context()))
			until(1)
			require.NoError(t, a.Shutdown(t.Context()))
			f.start("b", executor.Options{}, 2, takes(0))
			assert.Len(t, f.runs, 1, "the other had no worker")
			assert.EqualValues(t, 2, f.status().Counts.Failed)
		})
	}
	bubble(t, "counts no attempt against MaxAttempts, which crashes use up", func(t *testing.T, f *fleet) {
		job := f.job(1, takes(50*time.Second))
		job.MaxAttempts = 2
		start := func(name string) *executor.Executor {
			e := f.executor(name, executor.Options{DrainTimeout: -1}, 1, takes(0))
			require.NoError(t, e.Register(job))
			require.NoError(t, e.Start(t.Context()))
			return e
		}
		e := start("a0")
		until(1)
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			next := start(name)
			require.NoError(t, e.Shutdown(t.Context()))
			time.Sleep(time.Second) // the run has begun again
			e = next
		}
		require.Len(t, f.attempts(1)[0], 5)
		f.server.Partition("a4")
		start("b")
		time.Sleep(15 * time.Second)
		runs := f.attempts(1)[0]
		require.Len(t, runs, 6, "the first crash")
		assert.Equal(t, 6, runs[5].Attempt)
		f.server.Partition("b")
		start("c")
		time.Sleep(15 * time.Second)
		assert.Len(t, f.attempts(1)[0], 6, "the second crash")
		assert.EqualValues(t, 1, f.status().Counts.Lost)
	})
	bubble(t, "keeps the run of a trigger, with its parameter", func(t *testing.T, f *fleet) {
		a := f.start("a", impatient, 1, takes(20*time.Second))
		number, err := a.Trigger(t.Context(), "job", executor.Trigger{Param: "by hand"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		f.rolling(a, "b", executor.Options{}, 1, takes(0))
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Len(t, f.runs, 2)
		assert.Equal(t, []uint64{number, number}, []uint64{f.runs[0].Trigger, f.runs[1].Trigger})
		assert.Equal(t, "by hand", f.runs[1].Param)
		assert.Equal(t, 2, f.runs[1].Attempt)
	})
	bubble(t, "waits with the shards for an instance of the same name", func(t *testing.T, f *fleet) {
		grace := executor.Options{DrainTimeout: time.Second, RestartGrace: time.Minute}
		a := f.start("a", grace, 2, takes(20*time.Second))
		f.start("b", grace, 2, takes(20*time.Second))
		until(1)
		f.rolling(a, "a", grace, 2, takes(time.Second))
		assert.Equal(t, map[int][]string{0: {"a1", "a2"}, 1: {"b1"}}, f.began(1))
	})
	bubble(t, "lets an error of another cause be a failure, whatever it wraps", func(t *testing.T, f *fleet) {
		f.start("a", impatient, 1, func(context.Context, *executor.Run) error {
			return errors.Join(errors.New("of its own"), claimer.ErrHandedBack)
		})
		until(1)
		assert.Len(t, f.attempts(1)[0], 1)
		assert.EqualValues(t, 1, f.status().Counts.Failed)
	})
	bubble(t, "loses nothing if the process dies before the store knows", func(t *testing.T, f *fleet) {
		a := f.start("a", impatient, 2, takes(20*time.Second))
		f.start("b", executor.Options{}, 2, takes(time.Second))
		until(1)
		f.server.Partition("a")
		require.NoError(t, a.Shutdown(t.Context()))
		until(2)
		assert.Equal(t, map[int][]string{0: {"a1", "b2"}, 1: {"b1"}}, f.began(1))
	})
}
