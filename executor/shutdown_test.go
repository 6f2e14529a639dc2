package executor_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// fleet is executors on one server, and what they have run.
type fleet struct {
	t      *testing.T
	server *memory.Server
	gates  *gates // nil: the store has no transactions for users

	members []*executor.Executor
	observe executor.Observer // of the executors to come

	mu   sync.Mutex
	runs []executor.Run
	ends []executor.RunEnded // of complete_test.go
}

// stop shuts down those who are left.
func (f *fleet) stop() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, e := range f.members {
		e.Shutdown(ended)
	}
}

func bubble(t *testing.T, name string, f func(t *testing.T, f *fleet)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := &fleet{t: t, server: memory.New()}
			defer all.stop()
			f(t, all)
		})
	})
}

// start starts an executor of one job that fires each minute.
func (f *fleet) start(name string, o executor.Options, shards int, handle executor.HandlerFunc) *executor.Executor {
	f.t.Helper()
	e := f.executor(name, o, shards, handle)
	require.NoError(f.t, e.Start(f.t.Context()))
	time.Sleep(time.Second)
	return e
}

func (f *fleet) executor(name string, o executor.Options, shards int, handle executor.HandlerFunc) *executor.Executor {
	f.t.Helper()
	e := f.bare(name, o)
	require.NoError(f.t, e.Register(f.job(shards, handle)))
	return e
}

// bare returns an executor that has no job. It has not started.
func (f *fleet) bare(name string, o executor.Options) *executor.Executor {
	f.t.Helper()
	o.Instance = name
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := executor.New(f.client(name), "test", o)
	require.NoError(f.t, err)
	e.Observe(f.observe)
	f.members = append(f.members, e)
	return e
}

// client returns the handle of an instance.
func (f *fleet) client(name string) registry.Registry {
	if f.gates == nil {
		return f.server.Client(name)
	}
	return gated{f.server.Client(name), f.gates}
}

// operator returns an Operator that is not in the fleet.
func (f *fleet) operator() *operator.Operator {
	f.t.Helper()
	o, err := operator.New(f.server.Client("console"), "test", "")
	require.NoError(f.t, err)
	return o
}

// job fires each minute and keeps what it ran.
func (f *fleet) job(shards int, handle executor.HandlerFunc) executor.Job {
	return executor.Job{
		Name: "job", Schedule: schedule.Every(time.Minute), Shards: shards,
		Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			f.mu.Lock()
			f.runs = append(f.runs, *r)
			f.mu.Unlock()
			return handle(ctx, r)
		}),
	}
}

// began returns how often each shard was begun for the fire of the n-th minute, by whom.
func (f *fleet) began(n int) map[int][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[int][]string{}
	for _, r := range f.runs {
		if r.FireTime.Equal(minute(n)) {
			out[r.Shard] = append(out[r.Shard], fmt.Sprint(r.Instance, r.Attempt))
		}
	}
	return out
}

func minute(n int) time.Time {
	return time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC)
}

// until sleeps to the n-th minute of the bubble, and a second more.
// pass lets time pass, until all goroutines wait. The test may then read what handlers have written.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func until(n int) {
	time.Sleep(time.Until(minute(n).Add(time.Second)))
	synctest.Wait()
}

func takes(d time.Duration) executor.HandlerFunc {
	return func(ctx context.Context, _ *executor.Run) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestShutdown(t *testing.T) {
	bubble(t, "lets runs finish, and others take the shards", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 2, takes(10*time.Second))
		b := f.start("b", executor.Options{}, 2, takes(time.Second))
		until(1)
		require.NoError(t, a.Shutdown(t.Context()))
		assert.Equal(t, 10*time.Second, time.Since(minute(1)))
		until(2)
		assert.Equal(t, map[int][]string{0: {"a1"}, 1: {"b1"}}, f.began(1))
		assert.Equal(t, map[int][]string{0: {"b1"}, 1: {"b1"}}, f.began(2))
		assert.NoError(t, b.Shutdown(t.Context()))
	})
	bubble(t, "ends the contexts of what does not finish in time, with ErrDraining", func(t *testing.T, f *fleet) {
		causes := make(chan error, 1)
		a := f.start("a", executor.Options{DrainTimeout: 5 * time.Second}, 1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		until(1)
		began := time.Now()
		require.NoError(t, a.Shutdown(t.Context()))
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.ErrorIs(t, <-causes, executor.ErrDraining)
	})
	bubble(t, "ends them at once if that is wanted", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{DrainTimeout: -1}, 1, takes(time.Hour))
		until(1)
		began := time.Now()
		require.NoError(t, a.Shutdown(t.Context()))
		assert.Zero(t, time.Since(began))
	})
	bubble(t, "gives runs their time once, also when the registry cannot be reached", func(t *testing.T, f *fleet) {
		ended := make(chan time.Time, 1)
		a := f.start("a", executor.Options{DrainTimeout: 6 * time.Second, SessionTTL: time.Minute}, 1, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			ended <- time.Now()
			return nil
		})
		until(1)
		defer f.server.Partition("a")()
		began := time.Now()
		require.NoError(t, a.Shutdown(t.Context()))
		assert.Equal(t, 6*time.Second, (<-ended).Sub(began))
	})
	bubble(t, "loses no run that was claimed, begun or not", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{Workers: 1, DrainTimeout: 3 * time.Second}, 4, takes(10*time.Second))
		until(1)
		require.Len(t, f.began(1), 1)
		b := f.start("b", executor.Options{}, 4, takes(time.Second))
		require.NoError(t, a.Shutdown(t.Context()))
		time.Sleep(5 * time.Second)
		began := f.began(1)
		require.Len(t, began, 4)
		onA := 0
		for shard, by := range began {
			if len(by) == 2 && by[0] == "a1" {
				onA++
			}
			assert.Equal(t, "b2", by[len(by)-1], "shard %d", shard)
		}
		assert.Equal(t, 1, onA)
		until(2)
		assert.Equal(t, map[int][]string{0: {"b1"}, 1: {"b1"}, 2: {"b1"}, 3: {"b1"}}, f.began(2))
		assert.NoError(t, b.Shutdown(t.Context()))
	})
	bubble(t, "reports handlers that ignore their context, and those alone", func(t *testing.T, f *fleet) {
		release := map[time.Time]chan struct{}{minute(1): make(chan struct{}), minute(2): make(chan struct{})}
		a := f.start("a", executor.Options{Workers: 2, DrainTimeout: time.Second}, 4, func(_ context.Context, r *executor.Run) error {
			if r.Attempt == 1 {
				<-release[r.FireTime]
			}
			return nil
		})
		until(1)
		require.Len(t, f.began(1), 2, "two wait for room")
		f.server.Expire("a") // what waits is over before it begins
		time.Sleep(3 * time.Second)
		close(release[minute(1)])
		until(2)
		err := a.Shutdown(t.Context())
		var abandoned *executor.AbandonedError
		require.ErrorAs(t, err, &abandoned)
		assert.Len(t, abandoned.Runs, 2)
		for _, id := range abandoned.Runs {
			assert.Contains(t, id, "00:02:00")
		}
		close(release[minute(2)])
	})
	bubble(t, "before Start, during Start and again does nothing more", func(t *testing.T, f *fleet) {
		a := f.executor("a", executor.Options{}, 1, takes(0))
		assert.NoError(t, a.Shutdown(t.Context()))
		assert.Error(t, a.Start(t.Context()))

		heal := f.server.Partition("b")
		b := f.executor("b", executor.Options{}, 1, takes(0))
		started := make(chan error, 1)
		go func() { started <- b.Start(context.Background()) }()
		synctest.Wait()
		assert.NoError(t, b.Shutdown(t.Context()))
		assert.Error(t, <-started)
		assert.NoError(t, b.Shutdown(t.Context()))
		heal()
	})
	bubble(t, "while the session is lost begins nothing afterwards", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{}, 1, takes(time.Second))
		heal := f.server.Partition("a")
		time.Sleep(20 * time.Second)
		began := time.Now()
		assert.NoError(t, a.Shutdown(t.Context()))
		assert.Zero(t, time.Since(began))
		heal()
		until(2)
		assert.Empty(t, f.began(1))
		assert.Empty(t, f.began(2))
	})
}

func TestRun(t *testing.T) {
	bubble(t, "goes from the end of its context to an orderly end", func(t *testing.T, f *fleet) {
		a := f.executor("a", executor.Options{}, 2, takes(5*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		until(1)
		stop()
		assert.NoError(t, <-ended)
		assert.Equal(t, 5*time.Second, time.Since(minute(1)))
		assert.Len(t, f.began(1), 2)
	})
	bubble(t, "returns nil when it is told to stop before it has begun", func(t *testing.T, f *fleet) {
		defer f.server.Partition("a")()
		a := f.executor("a", executor.Options{}, 1, takes(0))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		assert.NoError(t, a.Run(ctx))
	})
	bubble(t, "waits for handlers when the registry was closed under it", func(t *testing.T, f *fleet) {
		client := f.server.Client("a")
		e, err := executor.New(client, "test", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		returned := false
		require.NoError(t, e.Register(executor.Job{
			Name: "job", Schedule: schedule.Every(time.Minute),
			Handler: executor.HandlerFunc(func(ctx context.Context, _ *executor.Run) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				returned = true
				return nil
			}),
		}))
		ended := make(chan error, 1)
		go func() { ended <- e.Run(context.Background()) }()
		until(1)
		require.NoError(t, client.Close(t.Context()))
		assert.ErrorIs(t, <-ended, registry.ErrClosed)
		assert.True(t, returned)
	})
	bubble(t, "names the registry that was closed, and what ended by that, in its error and in a log line", func(t *testing.T, f *fleet) {
		client, log := f.server.Client("a"), &bytes.Buffer{}
		o := executor.Options{Instance: "a", Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))}
		e, err := executor.New(client, "test", o)
		require.NoError(t, err)
		require.NoError(t, e.Register(f.job(2, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return nil
		})))
		ended := make(chan error, 1)
		go func() { ended <- e.Run(context.Background()) }()
		until(1)
		require.NoError(t, client.Close(t.Context()))
		err = <-ended
		require.ErrorIs(t, err, registry.ErrClosed)
		for _, text := range []string{"run: ", "the registry was closed while instance a was in the group", "ended its session and its runs"} {
			assert.ErrorContains(t, err, text)
		}
		assert.Contains(t, log.String(), "the executor has ended without leaving the group")
		assert.Equal(t, 1, strings.Count(log.String(), "\n"), log)
	})
	bubble(t, "names the registry that was closed before the start", func(t *testing.T, f *fleet) {
		client := f.server.Client("a")
		e, err := executor.New(client, "test", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, client.Close(t.Context()))
		err = e.Run(t.Context())
		require.ErrorIs(t, err, registry.ErrClosed)
		require.ErrorContains(t, err, "start: open session: registry closed")
	})
}

func TestShutdown_WithoutAStore(t *testing.T) {
	bubble(t, "takes 5 s where nothing runs", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{SessionTTL: time.Minute}, 2, takes(time.Second))
		until(1)
		time.Sleep(10 * time.Second)
		defer f.server.Partition("a")()
		began := time.Now()
		require.NoError(t, a.Shutdown(t.Context()))
		assert.LessOrEqual(t, time.Since(began), 5*time.Second)
	})
	bubble(t, "takes 5 s more than the runs take", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{SessionTTL: time.Minute}, 2, takes(10*time.Second))
		until(1)
		defer f.server.Partition("a")()
		began := time.Now()
		require.NoError(t, a.Shutdown(t.Context()))
		assert.GreaterOrEqual(t, time.Since(began), 10*time.Second)
		assert.LessOrEqual(t, time.Since(began), 15*time.Second)
	})
	bubble(t, "hands over in good order if the store is back before the runs end", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{SessionTTL: time.Minute}, 2, takes(20*time.Second))
		f.start("b", executor.Options{SessionTTL: time.Minute}, 2, takes(time.Second))
		until(1)
		time.AfterFunc(10*time.Second, f.server.Partition("a"))
		began := time.Now()
		require.NoError(t, a.Shutdown(t.Context()))
		assert.LessOrEqual(t, time.Since(began), 20*time.Second)
		until(2)
		assert.Equal(t, map[int][]string{0: {"b1"}, 1: {"b1"}}, f.began(2))
	})
}

func TestShutdown_WithRestartGrace(t *testing.T) {
	bubble(t, "keeps the shards for the instance of its name that comes, which runs what fell due", func(t *testing.T, f *fleet) {
		grace := executor.Options{RestartGrace: time.Minute}
		f.start("a", grace, 2, takes(time.Second))
		b := f.start("b", grace, 2, takes(time.Second))
		until(1)
		time.Sleep(50 * time.Second)
		began := time.Now()
		require.NoError(t, b.Shutdown(t.Context()))
		assert.Less(t, time.Since(began), time.Second, "nobody takes over, so nobody is waited for")
		until(2)
		assert.Equal(t, map[int][]string{0: {"a1"}}, f.began(2))
		f.start("b", grace, 2, takes(time.Second))
		until(3)
		assert.Equal(t, map[int][]string{0: {"a1"}, 1: {"b1"}}, f.began(2))
		assert.Equal(t, map[int][]string{0: {"a1"}, 1: {"b1"}}, f.began(3))
	})
}
