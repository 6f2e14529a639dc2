package executor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
)

func TestStart(t *testing.T) {
	bubble(t, "of an executor that runs reports that", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		assert.EqualError(t, a.Start(t.Context()), "start: this executor has been started before; New makes another")
	})
	bubble(t, "after Shutdown reports that", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(0))
		require.NoError(t, a.Shutdown(t.Context()))
		assert.EqualError(t, a.Start(t.Context()), "start: this executor has been shut down; New makes another")
	})
	bubble(t, "after a Shutdown that came first does not report an earlier Start", func(t *testing.T, f *fleet) {
		a := f.executor("a", executor.Options{}, 1, takes(0))
		require.NoError(t, a.Shutdown(t.Context()))
		assert.EqualError(t, a.Start(t.Context()), "start: this executor has been shut down; New makes another")
	})
	bubble(t, "after a Start that failed reports that", func(t *testing.T, f *fleet) {
		f.start("a", executor.Options{}, 1, takes(0))
		a := f.executor("a", executor.Options{}, 1, takes(0))
		require.ErrorIs(t, a.Start(t.Context()), executor.ErrNameTaken)
		assert.EqualError(t, a.Start(t.Context()), "start: an earlier Start of this executor failed; New makes another")
	})
}

func TestOperations(t *testing.T) {
	verbs := func(e *executor.Executor) map[string]func(job string) error {
		return map[string]func(job string) error{
			"pause":  func(job string) error { return e.Operator().Pause(t.Context(), job) },
			"resume": func(job string) error { return e.Operator().Resume(t.Context(), job) },
			"disable": func(job string) error {
				return e.Operator().Disable(t.Context(), operator.Scope{Job: job, Shards: []int{0}})
			},
			"enable": func(job string) error {
				return e.Operator().Enable(t.Context(), operator.Scope{Job: job, Shards: []int{0}})
			},
			"trigger": func(job string) error {
				_, err := e.Trigger(t.Context(), job, executor.Trigger{})
				return err
			},
		}
	}
	bubble(t, "on a job that Start is yet to store report that", func(t *testing.T, f *fleet) {
		a := f.executor("a", executor.Options{}, 1, takes(0))
		for verb, call := range verbs(a) {
			err := call("job")
			assert.ErrorIs(t, err, executor.ErrUnknownJob, verb)
			assert.ErrorContains(t, err, verb)
			assert.NotContains(t, call("other").Error(), "Start", verb)
		}
		_, err := a.Trigger(t.Context(), "job", executor.Trigger{})
		assert.ErrorContains(t, err, "Start has not stored it yet")
	})
	bubble(t, "work before Start and after Shutdown on a job that is stored", func(t *testing.T, f *fleet) {
		gone := f.start("gone", executor.Options{}, 1, takes(0))
		require.NoError(t, gone.Shutdown(t.Context()))
		for _, e := range []*executor.Executor{gone, f.executor("a", executor.Options{}, 1, takes(0))} {
			for verb, call := range verbs(e) {
				assert.NoError(t, call("job"), verb)
			}
		}
	})
}
