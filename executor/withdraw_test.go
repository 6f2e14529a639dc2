package executor_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

func TestWithdraw(t *testing.T) {
	bubble(t, "moves the shards of this process to others, and lets its runs end", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(20*time.Second))
		f.start("b", executor.Options{}, 2, takes(20*time.Second))
		until(1)
		require.NoError(t, a.Withdraw(t.Context(), "job"))
		until(2)
		assert.Equal(t, map[int][]string{0: {"a1"}, 1: {"b1"}}, f.began(1), "no run is ended and made again")
		assert.Equal(t, map[int][]string{0: {"b1"}, 1: {"b1"}}, f.began(2))
	})
	bubble(t, "returns when the store has recorded it", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		require.NoError(t, a.Withdraw(t.Context(), "job"))
		st, err := f.operator().Status(t.Context(), "job")
		require.NoError(t, err)
		for _, m := range st.Members {
			assert.False(t, m.Offers, m.Instance)
		}
	})
	bubble(t, "returns an error if the store has not recorded it in time, and the store records it later", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		heal := f.server.Partition("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := a.Withdraw(ctx, "job")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, `withdraw ["job"]`)
		heal()
		until(3)
		assert.Empty(t, f.began(3))
	})
	bubble(t, "lets a job begin anew by another schedule once it is forgotten", func(t *testing.T, f *fleet) {
		var ran atomic.Int32
		job := executor.Job{Name: "yearly", Schedule: schedule.Every(8760 * time.Hour), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error {
			ran.Add(1)
			return nil
		})}
		a := f.start("a", executor.Options{}, 1, takes(0))
		require.NoError(t, a.Register(job))
		until(1)
		require.NoError(t, a.Withdraw(t.Context(), "yearly"))
		until(2)
		require.NoError(t, f.operator().Forget(t.Context(), "yearly"))
		job.Schedule = schedule.Every(time.Minute)
		require.NoError(t, a.Register(job))
		until(5)
		assert.Positive(t, ran.Load())
	})
	bubble(t, "of many jobs is one write, and names those that are not registered here", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		jobs, names := []executor.Job{}, []string{"nobody", "job"}
		for i := range 300 {
			names = append(names, fmt.Sprintf("tenant-%d", i))
			jobs = append(jobs, executor.Job{Name: names[i+2], Handler: takes(0)})
		}
		require.NoError(t, a.Register(jobs...))
		until(1)
		f.server.Record()
		err := a.Withdraw(t.Context(), names...)
		assert.EqualError(t, err, `withdraw "nobody": unknown job`)
		member := 0
		for _, c := range f.server.Log() {
			if strings.Contains(fmt.Sprint(c), "/members/") {
				member++
			}
		}
		assert.Equal(t, 1, member)
		until(2)
		list, err := f.operator().JobNames(t.Context())
		require.NoError(t, err)
		assert.Len(t, list, 301)
		assert.Empty(t, f.began(2))
	})
	bubble(t, "of a job that is not registered here is an error", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		assert.ErrorIs(t, a.Withdraw(t.Context(), "other"), executor.ErrUnknownJob)
	})
	bubble(t, "before Start keeps the job from being offered", func(t *testing.T, f *fleet) {
		a := f.executor("a", executor.Options{}, 1, takes(0))
		require.NoError(t, a.Withdraw(t.Context(), "job"))
		require.NoError(t, a.Start(t.Context()))
		until(2)
		assert.Empty(t, f.began(2))
	})
}
