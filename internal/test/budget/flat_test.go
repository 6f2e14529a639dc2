package budget_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// A fleet works for eight hours, or two, while jobs are triggered, paused, overridden, defined and deleted, sessions end and processes are replaced.
// Its goroutines, records and heap are the same in the second and in the fourth quarter.
func TestBudget_AWorkingDayIsFlat(t *testing.T) {
	defer onecpu.Hold()()
	quarter := long.Pick(30, 120) // minutes
	synctest.Test(t, func(t *testing.T) {
		f := newBusy(t)
		defer f.stop()
		most := make([]use, 4)
		for minute := range 4 * quarter {
			f.act(minute)
			time.Sleep(time.Minute)
			if minute%10 == 0 {
				most[minute/quarter].raise(f.use())
			}
		}
		t.Logf("%d runs; at most in each quarter: %+v", f.runs.Load(), most)
		before, after := most[1], most[3]
		assert.Less(t, after.goroutines, before.goroutines*9/8, "goroutines")
		assert.Less(t, after.records, before.records*9/8, "records")
		assert.Less(t, after.bytes, before.bytes*9/8, "bytes of the records")
		assert.Less(t, after.heap, before.heap*9/8, "bytes of heap")
	})
}

// use has the amounts of a fleet at an instant, or the most of them.
type use struct{ goroutines, records, bytes, heap int }

func (u *use) raise(by use) {
	u.goroutines, u.records, u.bytes, u.heap = max(u.goroutines, by.goroutines), max(u.records, by.records), max(u.bytes, by.bytes), max(u.heap, by.heap)
}

// busy is a fleet of three instances, of which one is replaced now and then.
type busy struct {
	t         *testing.T
	server    *memory.Server
	runs      atomic.Int64
	clients   [3]string // of the store
	executors [3]*executor.Executor
	started   int
}

func newBusy(t *testing.T) *busy {
	f := &busy{t: t, server: memory.New()}
	for i := range f.executors {
		f.start(i)
	}
	return f
}

// start starts a process as instance i.
func (f *busy) start(i int) {
	f.started++
	f.clients[i] = fmt.Sprintf("i%d-%d", i, f.started)
	ex, err := executor.New(f.server.Client(f.clients[i]), "test", executor.Options{Instance: fmt.Sprintf("i%d", i), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f.t, err)
	work := executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
		if f.runs.Add(1)%7 == 0 {
			return errors.New("no")
		}
		return r.Checkpoint(ctx, []byte(r.Key))
	})
	require.NoError(f.t, ex.RegisterKind(executor.Kind{Name: "note", Handler: work}))
	require.NoError(f.t, ex.Register(
		executor.Job{Name: "often", Schedule: schedule.Every(5 * time.Second), Shards: 6, Handler: work, Retry: executor.Retry{Max: 1, Initial: time.Second}},
		executor.Job{Name: "after", Schedule: schedule.AfterJob("often"), Handler: work},
		executor.Job{Name: "on-trigger", Shards: 3, Handler: work},
	))
	require.NoError(f.t, ex.Start(context.WithoutCancel(f.t.Context())))
	f.executors[i] = ex
}

// act makes the acts of a minute. In some of them the session of a process ends, or the process leaves and another one joins.
func (f *busy) act(minute int) {
	ctx := f.t.Context()
	number := func(n int) string { return fmt.Sprintf("note-%d", n) }
	op := f.executors[0].Operator()
	_, err := op.Trigger(ctx, "on-trigger", fmt.Sprint(minute), nil)
	require.NoError(f.t, err)
	require.NoError(f.t, op.Pause(ctx, "after"))
	require.NoError(f.t, op.Resume(ctx, "after"))
	require.NoError(f.t, op.Override(ctx, "often", operator.Override{Policies: map[string]any{"timeout": time.Duration(10+minute%5) * time.Second}}))
	_, err = op.DefineAll(ctx, []operator.Definition{
		{Name: number(minute), Kind: "note", Schedule: schedule.Every(20 * time.Second)},
		{Name: "once-" + number(minute), Kind: "note", Schedule: schedule.At(time.Now().Add(10 * time.Second)), DeleteAfter: time.Minute},
	})
	require.NoError(f.t, err)
	if minute >= 10 {
		require.NoError(f.t, op.Delete(ctx, number(minute-10)))
	}
	i := minute / 10 % len(f.executors)
	switch minute % 10 {
	case 4:
		f.server.Expire(f.clients[i])
	case 9:
		require.NoError(f.t, f.executors[i].Shutdown(ctx))
		f.start(i)
	}
}

func (f *busy) stop() {
	for _, ex := range f.executors {
		require.NoError(f.t, ex.Shutdown(context.Background()))
	}
}

func (f *busy) use() use {
	u := use{goroutines: runtime.NumGoroutine(), heap: heapInUse()}
	for _, e := range f.server.Dump() {
		u.records++
		u.bytes += len(e.Key) + len(e.Value)
	}
	return u
}
