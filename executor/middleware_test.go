package executor

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry/memory"
)

// noting returns a middleware that appends its name before and after each run.
func noting(log *[]string, name string) Middleware {
	return func(next Handler) Handler {
		*log = append(*log, "wrap "+name)
		return HandlerFunc(func(ctx context.Context, r *Run) error {
			*log = append(*log, name+" begins")
			defer func() { *log = append(*log, name+" ends") }()
			return next.Handle(ctx, r)
		})
	}
}

func newExecutor(t *testing.T, o Options) *Executor {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	e, err := New(memory.New().Client("a"), "test", o)
	require.NoError(t, err)
	return e
}

// runTriggers starts e, triggers job n times and returns the counts of its runs.
func runTriggers(t *testing.T, e *Executor, job string, n int) (succeeded, failed int) {
	t.Helper()
	require.NoError(t, e.Start(t.Context()))
	for range n {
		_, err := e.Trigger(t.Context(), job, Trigger{})
		require.NoError(t, err)
	}
	time.Sleep(10 * time.Second)
	st, err := e.Operator().Status(t.Context(), job)
	require.NoError(t, err)
	require.NoError(t, e.Shutdown(t.Context()))
	return int(st.Counts.Succeeded), int(st.Counts.Failed)
}

func TestMiddleware_FirstIsOutermostAndTheJobsIsWithinTheExecutors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		e := newExecutor(t, Options{Middleware: []Middleware{noting(&log, "1"), noting(&log, "2")}})
		require.NoError(t, e.Register(Job{
			Name: "job", Middleware: []Middleware{noting(&log, "3"), noting(&log, "4")},
			Handler: HandlerFunc(func(context.Context, *Run) error { log = append(log, "run"); return nil }),
		}))
		assert.Equal(t, []string{"wrap 4", "wrap 3", "wrap 2", "wrap 1"}, log)
		log = nil
		succeeded, failed := runTriggers(t, e, "job", 2)
		assert.Equal(t, []int{2, 0}, []int{succeeded, failed})
		once := []string{"1 begins", "2 begins", "3 begins", "4 begins", "run", "4 ends", "3 ends", "2 ends", "1 ends"}
		assert.Equal(t, append(once, once...), log, "wrapped once, called for each run")
	})
}

func TestMiddleware_OfAJobConcernsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		e := newExecutor(t, Options{})
		nothing := HandlerFunc(func(context.Context, *Run) error { return nil })
		require.NoError(t, e.Register(
			Job{Name: "with", Handler: nothing, Middleware: []Middleware{noting(&log, "m")}},
			Job{Name: "without", Handler: nothing},
		))
		runTriggers(t, e, "without", 1)
		assert.Equal(t, []string{"wrap m"}, log)
	})
}

func TestMiddleware_DeterminesTheResult(t *testing.T) {
	for _, c := range []struct {
		name       string
		handler    error
		middleware Middleware
		succeeded  int
	}{
		{"error instead of success", nil, func(Handler) Handler {
			return HandlerFunc(func(context.Context, *Run) error { return errors.New("refused") })
		}, 0},
		{"success instead of an error", errors.New("failed"), func(next Handler) Handler {
			return HandlerFunc(func(ctx context.Context, r *Run) error { _ = next.Handle(ctx, r); return nil })
		}, 1},
		{"panic", nil, func(Handler) Handler {
			return HandlerFunc(func(context.Context, *Run) error { panic("in middleware") })
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newExecutor(t, Options{Middleware: []Middleware{c.middleware}})
				require.NoError(t, e.Register(Job{Name: "job", Handler: HandlerFunc(func(context.Context, *Run) error { return c.handler })}))
				succeeded, failed := runTriggers(t, e, "job", 1)
				assert.Equal(t, []int{c.succeeded, 1 - c.succeeded}, []int{succeeded, failed})
			})
		})
	}
}

func TestMiddleware_NilIsRefused(t *testing.T) {
	var log []string
	some := noting(&log, "m")
	t.Run("entry of the options", func(t *testing.T) {
		_, err := New(memory.New().Client("a"), "test", Options{Middleware: []Middleware{some, nil, nil}, Workers: -1})
		assert.ErrorContains(t, err, "option Middleware: nil entries: [1 2]")
		assert.ErrorContains(t, err, "option Workers is -1", "beside other problems")
	})
	nothing := HandlerFunc(func(context.Context, *Run) error { return nil })
	t.Run("entry of a job", func(t *testing.T) {
		err := newExecutor(t, Options{}).Register(Job{Name: "job", Handler: nothing, Middleware: []Middleware{nil, some}})
		assert.ErrorIs(t, err, ErrInvalidJob)
		assert.EqualError(t, err, `invalid job "job": Middleware: nil entries: [0]`)
	})
	for name, m := range map[string]Middleware{
		"result":                    func(Handler) Handler { return nil },
		"function that is a result": func(Handler) Handler { return HandlerFunc(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			err := newExecutor(t, Options{}).Register(Job{Name: "job", Handler: nothing, Middleware: []Middleware{some, m}})
			assert.EqualError(t, err, `invalid job "job": Middleware: entry 1 returned a nil handler`)
			e := newExecutor(t, Options{Middleware: []Middleware{m}})
			err = e.Register(Job{Name: "job", Handler: nothing})
			assert.ErrorIs(t, err, ErrInvalidJob)
			assert.EqualError(t, err, `invalid job "job": Options.Middleware: entry 0 returned a nil handler`)
			_, err = e.findHandler("job", "")
			assert.ErrorIs(t, err, ErrUnknownJob)
		})
	}
}

func TestMiddleware_CallersSliceMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		list := []Middleware{noting(&log, "first")}
		e := newExecutor(t, Options{Middleware: list})
		list[0] = nil
		require.NoError(t, e.Register(Job{Name: "job", Handler: HandlerFunc(func(context.Context, *Run) error { return nil })}))
		runTriggers(t, e, "job", 1)
		assert.Equal(t, []string{"wrap first", "first begins", "first ends"}, log)
	})
}

// checked is a handler with problems.
type checked struct {
	HandlerFunc
	err error
}

func (c checked) Check() error { return c.err }

func TestRegister_ReportsTheProblemsOfAHandler(t *testing.T) {
	nothing := HandlerFunc(func(context.Context, *Run) error { return nil })
	assert.NoError(t, newExecutor(t, Options{}).Register(Job{Name: "job", Handler: checked{nothing, nil}}))

	cause := errors.New("no such program")
	err := newExecutor(t, Options{}).Register(
		Job{Name: "one", Handler: checked{nothing, cause}, MaxRunning: -1},
		Job{Name: "two", Handler: checked{nothing, errors.Join(errors.New("first"), errors.New("second"))}},
	)
	assert.ErrorIs(t, err, ErrInvalidJob)
	assert.ErrorIs(t, err, cause)
	assert.EqualError(t, err, `invalid job "one": Handler: no such program
invalid job "one": MaxRunning: -1 is negative
invalid job "two": Handler: first
invalid job "two": Handler: second`)

	t.Run("though middleware wraps it", func(t *testing.T) {
		var log []string
		err := newExecutor(t, Options{Middleware: []Middleware{noting(&log, "m")}}).Register(Job{Name: "job", Handler: checked{nothing, cause}})
		assert.ErrorIs(t, err, cause)
		assert.Empty(t, log)
	})
}
