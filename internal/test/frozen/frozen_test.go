package frozen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

var freeze = flag.String("freeze", "", "`version` whose records this run writes, of a release that has none yet")

func TestMain(m *testing.M) {
	defer onecpu.Hold()()
	m.Run()
}

// fleet has the jobs and kinds of the frozen records.
type fleet struct {
	t      *testing.T
	server *memory.Server
	op     *operator.Operator

	mu   sync.Mutex
	runs []run
	hang bool // runs of "long" last until their process crashes
}

// run is a call of a handler.
type run struct {
	at       time.Time
	instance string
	executor.RunInfo
	resumed string
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, server: memory.New()}
	var err error
	o, err := operator.New(f.server.Client("operator"), "frozen", "")
	require.NoError(t, err)
	f.op = o.WithCompiler(executor.Compile)
	return f
}

// start starts an instance with all jobs and kinds.
func (f *fleet) start(name string) *executor.Executor {
	ex, err := executor.New(f.server.Client(name), "frozen", executor.Options{Instance: name, Host: "host-" + name, Logger: slog.New(slog.DiscardHandler), Labels: map[string]string{"disk": "ssd"}})
	require.NoError(f.t, err)
	handle := executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { return f.handle(ctx, name, r) })
	job := func(j executor.Job) {
		j.Handler = handle
		require.NoError(f.t, ex.Register(j), j.Name)
	}
	minutes := func(n int) schedule.Schedule { return schedule.Every(time.Duration(n) * time.Minute) }
	job(executor.Job{Name: "cron", Schedule: schedule.Cron("*/10 * * * *").In("Europe/Berlin"), Shards: 4, ShardParams: map[int]string{2: "two"}, Param: "all", Revision: 3})
	job(executor.Job{Name: "failing", Schedule: minutes(10), Shards: 3, Retry: executor.Retry{Max: -1, Initial: 4 * time.Minute, Factor: 1}})
	job(executor.Job{Name: "follows", Schedule: schedule.AfterJob("cron")})
	job(executor.Job{Name: "delayed", Schedule: schedule.FixedDelay(7 * time.Minute), Shards: 2})
	job(executor.Job{Name: "by hand", Schedule: schedule.OnTrigger(), Shards: 3})
	job(executor.Job{Name: "paused", Schedule: minutes(5)})
	job(executor.Job{Name: "stopped", Schedule: minutes(5)})
	job(executor.Job{Name: "disabled", Schedule: minutes(10), Shards: 4})
	job(executor.Job{Name: "overridden", Schedule: minutes(10), Shards: 2, Param: "mine"})
	job(executor.Job{Name: "back", Schedule: minutes(60), OnMisfire: executor.SkipMissed})
	job(executor.Job{Name: "long", Schedule: minutes(30), Shards: 2, RunOn: map[string]string{"disk": "ssd"}})
	job(executor.Job{Name: "pooled", Schedule: minutes(10), Shards: 6, Pool: "db"})
	require.NoError(f.t, ex.RegisterKind(executor.Kind{Name: "note", Handler: handle, Revision: 2, Defaults: executor.Job{Timeout: time.Minute}}))
	require.NoError(f.t, ex.Start(f.t.Context()))
	return ex
}

func (f *fleet) handle(ctx context.Context, instance string, r *executor.Run) error {
	var resumed string
	if data, err := r.Resume(ctx); err == nil {
		resumed = string(data)
	}
	f.mu.Lock()
	f.runs = append(f.runs, run{time.Now(), instance, r.RunInfo, resumed})
	hang := f.hang
	f.mu.Unlock()
	switch {
	case r.Job == "cron":
		return r.Checkpoint(ctx, fmt.Append(nil, "after ", r.FireTime.UTC().Format("15:04")))
	case r.Job == "failing" && r.Shard == 1:
		return errors.New("no paper")
	case r.Job == "long" && hang:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// of returns the runs of a job from an instant on, each as fire, shard and attempt, sorted.
func (f *fleet) of(job string, from time.Time) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.runs {
		if r.Job == job && !r.at.Before(from) {
			all = append(all, fmt.Sprintf("%s %d/%d", r.FireTime.UTC().Format("15:04"), r.Shard, r.Attempt))
		}
	}
	slices.Sort(all)
	return all
}

// lived is when the fleet of the frozen records crashes, counted from the begin of a bubble.
const lived = 65 * time.Minute

// record runs a fleet in which each kind of record and each act occurs, and returns its records after a crash of all instances.
func record(t *testing.T) Dump {
	f := newFleet(t)
	a, b := f.start("a"), f.start("b")
	do := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	op, ctx := f.op.As("kim", "frozen"), t.Context()
	begin := time.Now()
	time.Sleep(31 * time.Minute)
	do(op.PauseUntil(ctx, "paused", begin.Add(2*time.Hour)))
	do(op.StopSchedule(ctx, "stopped"))
	do(op.Disable(ctx, operator.Scope{Job: "disabled", Shards: []int{1, 2}}))
	param := "theirs"
	do(op.Override(ctx, "overridden", operator.Override{Schedule: "every 20m", Param: &param}))
	do(op.SetPool(ctx, "db", 2))
	for _, def := range []operator.Definition{
		{Name: "notes/often", Kind: "note", Schedule: schedule.Every(time.Minute), Param: "often"},
		{Name: "notes/daily", Kind: "note", Schedule: schedule.Cron("30 2 * * *"), Param: "daily"},
		{Name: "notes/once", Kind: "note", Schedule: schedule.At(begin.Add(100 * time.Minute)), Param: "once"},
		{Name: "notes/done", Kind: "note", Schedule: schedule.At(begin.Add(40 * time.Minute)), DeleteAfter: -1},
		{Name: "notes/gone", Kind: "note", Schedule: schedule.Every(time.Minute)},
	} {
		_, err := op.Define(ctx, def)
		do(err)
	}
	time.Sleep(31 * time.Minute)
	do(op.Delete(ctx, "notes/gone"))
	do(op.Pause(ctx, "by hand"))
	_, err := op.Trigger(ctx, "by hand", "please", []int{0, 2})
	do(err)
	do(op.Pause(ctx, "back"))
	_, err = op.Backfill(ctx, "back", begin.Add(-5*time.Hour), begin.Add(-2*time.Hour), 1)
	do(err)
	time.Sleep(2*time.Minute + 30*time.Second)
	f.mu.Lock()
	f.hang = true
	f.mu.Unlock()
	_, err = op.Trigger(ctx, "long", "", nil)
	do(err)
	time.Sleep(time.Until(begin.Add(lived)))
	synctest.Wait()
	for _, ex := range []*executor.Executor{a, b} { // a crash: nothing is left in order
		f.server.Partition(ex.Instance())
		f.server.Expire(ex.Instance())
	}
	d := New(time.Now(), f.server.Dump())
	f.mu.Lock()
	f.hang = false
	f.mu.Unlock()
	for _, ex := range []*executor.Executor{a, b} {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = ex.Shutdown(ended)
		cancel()
		<-ex.Done()
	}
	return d
}

func TestRecords(t *testing.T) {
	if *freeze != "" {
		synctest.Test(t, func(t *testing.T) {
			text, err := record(t).Encode()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join("testdata", *freeze+".json"), text, 0o644))
		})
	}
	all, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	t.Run("of this version", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := record(t)
			goOn(t, d)
		})
	})
	for _, path := range all {
		t.Run("of "+strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			d, err := Parse(text)
			require.NoError(t, err)
			synctest.Test(t, func(t *testing.T) { goOn(t, d) })
		})
	}
}

// goOn starts a fleet from frozen records, a minute after their fleet has crashed.
func goOn(t *testing.T, d Dump) {
	f := newFleet(t)
	load(t, f, d)
	from := d.At.Add(time.Minute)
	time.Sleep(time.Until(from))
	for _, name := range []string{"a", "c"} {
		ex := f.start(name)
		defer func() { _ = ex.Shutdown(context.WithoutCancel(t.Context())) }()
	}
	time.Sleep(14*time.Minute + 30*time.Second)
	at := func(minutes int) string {
		return d.At.Add(-lived).Add(time.Duration(minutes) * time.Minute).UTC().Format("15:04")
	}
	each := func(shards int, minutes ...int) (want []string) {
		for _, m := range minutes {
			for s := range shards {
				want = append(want, fmt.Sprintf("%s %d/1", at(m), s))
			}
		}
		return want
	}
	status := func(job string) operator.Status {
		st, err := f.op.Status(t.Context(), job)
		require.NoError(t, err, job)
		return st
	}
	diagnosis, err := f.op.Diagnose(t.Context())
	require.NoError(t, err)
	for _, found := range diagnosis.Findings {
		assert.NotContains(t, found.What, "read", "%+v", found)
	}
	assert.Equal(t, each(4, 70, 80), f.of("cron", from), "no fire is lost or repeated")
	assert.Equal(t, each(1, 70, 80), f.of("follows", from))
	assert.Equal(t, each(6, 70, 80), f.of("pooled", from))
	assert.Equal(t, each(1, 70, 80), keep(f.of("disabled", from), " 0/"), "the shards that are enabled")
	assert.Empty(t, keep(f.of("disabled", from), " 1/"))
	assert.Equal(t, each(2, 80), f.of("overridden", from))
	assert.Empty(t, f.of("paused", from))
	assert.Empty(t, f.of("stopped", from))
	assert.Empty(t, f.of("by hand", from))
	assert.Empty(t, f.of("back", from))
	long := f.of("long", from)
	require.Len(t, long, 2, "the runs that the crash has interrupted")
	for _, r := range long {
		assert.Contains(t, r, "/2", "a second attempt")
	}
	f.mu.Lock()
	for _, r := range f.runs {
		if r.Job == "cron" && r.FireTime.Equal(d.At.Add(-lived).Add(70*time.Minute)) {
			assert.Equal(t, "after "+at(60), r.resumed, "the state of shard %d", r.Shard)
			assert.Equal(t, "all", r.Param)
			assert.Equal(t, map[int]string{2: "two"}[r.Shard], r.ShardParam)
		}
		if r.Job == "overridden" {
			assert.Equal(t, "theirs", r.Param)
		}
	}
	f.mu.Unlock()
	assert.NotEmpty(t, keep(f.of("failing", from), " 1/"), "the retries of the shard that fails go on")
	assert.Len(t, f.of("notes/often", from), 16, "the run that was interrupted, and those of the minutes 66 to 80")
	assert.Empty(t, f.of("notes/gone", from))
	assert.Empty(t, f.of("notes/done", from))
	assert.Equal(t, []int{1}, status("failing").Failing)

	require.NoError(t, f.op.Resume(t.Context(), "by hand"))
	require.NoError(t, f.op.Resume(t.Context(), "back"))
	time.Sleep(time.Minute)
	byHand := f.of("by hand", from)
	require.Len(t, byHand, 2)
	f.mu.Lock()
	for _, r := range f.runs {
		if r.Job == "by hand" {
			assert.Equal(t, uint64(1), r.Trigger)
			assert.Equal(t, "please", r.Param)
		}
	}
	f.mu.Unlock()
	assert.Len(t, f.of("back", from), 3, "the fires of the backfill")
	time.Sleep(2 * time.Hour)
	assert.Equal(t, each(1, 100), f.of("notes/once", from))
	assert.Len(t, f.of("notes/daily", from), 1)
	assert.NotEmpty(t, f.of("paused", from), "the pause has ended")
	pools, err := f.op.Pools(t.Context())
	require.NoError(t, err)
	require.Len(t, pools, 1)
	assert.Equal(t, 2, pools[0].Size)
}

// load puts frozen records into an empty store, as an operator would restore a backup of it.
func load(t *testing.T, f *fleet, d Dump) {
	reg := f.server.Client("loader")
	for _, r := range d.Records {
		value, err := r.Bytes()
		require.NoError(t, err)
		if strings.HasPrefix(r.Key.Name(), "~") {
			t.Errorf("%s is owned by a session, which has ended", r.Key)
			continue
		}
		_, err = reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(r.Key, value)}})
		require.NoError(t, err, r.Key)
	}
	require.NoError(t, f.op.RaiseFences(t.Context(), d.Fence))
}

// keep returns the elements that contain a text.
func keep(all []string, part string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, part) })
}
