package budget_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// fleet is some executors on one server.
type fleet struct {
	t       testing.TB
	server  *memory.Server
	members []*executor.Executor
}

func newFleet(t testing.TB) *fleet { return &fleet{t: t, server: memory.New()} }

// start starts an instance that offers jobs.
func (f *fleet) start(name string, jobs ...executor.Job) *executor.Executor {
	f.t.Helper()
	e, err := executor.New(f.server.Client(name), "test", executor.Options{
		Instance: name, Workers: 100, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(f.t, err)
	require.NoError(f.t, e.Register(jobs...))
	require.NoError(f.t, e.Start(f.t.Context()))
	f.members = append(f.members, e)
	return e
}

// stop shuts all instances down.
func (f *fleet) stop() {
	for _, e := range f.members {
		assert.NoError(f.t, e.Shutdown(f.t.Context()))
	}
}

// commits returns the commits since the last call that wrote a key with that part.
func (f *fleet) commits(part string) []memory.Commit {
	var out []memory.Commit
	for _, c := range f.server.Log() {
		if c.Err == nil && keysWith(c, part) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func keysWith(c memory.Commit, part string) int {
	n := 0
	for _, op := range c.Then {
		if strings.Contains(string(op.Key), part) {
			n++
		}
	}
	return n
}

// takes returns a handler whose runs all take d.
func takes(d time.Duration) executor.HandlerFunc {
	return func(ctx context.Context, _ *executor.Run) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func jobs(n int, like executor.Job) []executor.Job {
	out := make([]executor.Job, n)
	for i := range out {
		out[i] = like
		out[i].Name = fmt.Sprintf("%s-%05d", like.Name, i)
	}
	return out
}

// What a fire costs, counted at the server with the leader included, once 20 fires have
// passed: two commits an instance whatever the number of shards, small ones, no reads.
func TestBudget_FireOfShardsThatEndTogether(t *testing.T) {
	const instances, fires = 3, 20
	for _, shards := range []int{1, 10, 100, 1000} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.stop()
				for i := range instances {
					f.start(fmt.Sprint("i", i), executor.Job{
						Name: "job", Schedule: executor.Every(time.Minute), Shards: shards, Handler: takes(time.Millisecond),
					})
				}
				time.Sleep(20*time.Minute + 30*time.Second)
				f.server.ResetCounts()
				time.Sleep(fires * time.Minute)
				n := f.server.Counts("")
				t.Logf("%d fires over %d instances: %d commits of at most %d bytes, %d reads, %d conflicts",
					fires, instances, n.Commits, n.MaxBytes, n.Reads, n.Conflicts)
				assert.LessOrEqual(t, n.Commits, 2*fires*min(instances, shards))
				assert.Positive(t, n.Commits)
				assert.LessOrEqual(t, n.MaxBytes, 1024)
				assert.Zero(t, n.Reads)
				assert.Zero(t, n.Conflicts)
			})
		})
	}
}

func TestBudget_TwentyJobsDueTogetherAreClaimedInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.stop()
		f.start("a", jobs(20, executor.Job{
			Name: "job", Schedule: executor.Every(time.Minute), Shards: 4, Handler: takes(10 * time.Second),
		})...)
		time.Sleep(20*time.Minute + 30*time.Second)
		f.server.ResetCounts()
		time.Sleep(35 * time.Second) // the fire at 21:00 and 5 s of its runs
		n := f.server.Counts("")
		assert.Equal(t, 1, n.Commits)
		assert.Equal(t, 20, n.Keys)
		assert.Zero(t, n.Reads)
	})
}

func TestBudget_ReshardTakesTwoCommits(t *testing.T) {
	for _, shards := range []int{10, 1000, 10_000} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				defer f.stop()
				job := executor.Job{Name: "job", Schedule: executor.Every(time.Hour), Shards: shards, Handler: takes(0)}
				for i := range 4 { // of which all lose shards to the fifth
					f.start(fmt.Sprint("i", i), job)
				}
				time.Sleep(61 * time.Minute)
				f.server.Record()
				f.start("late", job)
				time.Sleep(time.Second)
				commits := f.commits("/plan/")
				assert.Len(t, commits, 2)
				for _, c := range commits {
					for _, op := range c.Then {
						assert.LessOrEqual(t, len(op.Value), registry.PortableLimits.ValueBytes)
					}
				}
			})
		})
	}
}

func TestBudget_CrashOfOneOfTenInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		defer f.stop()
		all := jobs(1000, executor.Job{Name: "job", Schedule: executor.Every(time.Hour), Handler: takes(0)})
		for i := range 10 {
			f.start(fmt.Sprint("i", i), all...)
		}
		time.Sleep(61 * time.Minute)
		leader := f.leader()
		heal := f.server.Partition(leader)
		defer heal()
		f.server.Record()
		time.Sleep(20 * time.Second)
		log := f.server.Log()
		elections, failovers, failedOver := 0, 0, 0
		for _, c := range log {
			if c.Err != nil {
				continue
			}
			elections += keysWith(c, "/office/leader")
			if n := keysWith(c, "/plan/"); n > 0 {
				failovers++
				failedOver += n
			}
		}
		t.Logf("leader %s crashed with its share of 1000 jobs: %d election, %d jobs failed over in %d commits", leader, elections, failedOver, failovers)
		assert.Equal(t, 1, elections)
		assert.Equal(t, 100, failedOver)
		assert.GreaterOrEqual(t, failedOver, 20*failovers)
	})
}

// leader returns the name of the instance in office.
func (f *fleet) leader() string {
	for _, e := range f.server.Dump() {
		if strings.HasSuffix(string(e.Key), "/office/leader") {
			_, rest, _ := strings.Cut(string(e.Value), `"incarnation":"`)
			name, _, _ := strings.Cut(rest, ".")
			return name
		}
	}
	f.t.Fatal("nobody leads")
	return ""
}

// What a job costs a process at rest, the memory server's copy of its records included.
func TestBudget_TenThousandJobsInOneProcess(t *testing.T) {
	few, fewHeap := atRest(t, 10)
	many, manyHeap := atRest(t, 10_000)
	perJob := (manyHeap - fewHeap) / (10_000 - 10)
	t.Logf("goroutines: %d with 10 jobs, %d with 10,000; heap per job: %d bytes", few, many, perJob)
	assert.LessOrEqual(t, many-few, 20)
	assert.LessOrEqual(t, perJob, 10<<10)
}

// atRest returns the goroutines and the heap with n jobs that have been dealt.
func atRest(t *testing.T, n int) (goroutines, heap int) {
	f := newFleet(t)
	defer f.stop()
	f.server.Record()
	f.start("a", jobs(n, executor.Job{
		Name: "job", Schedule: executor.Cron("0 3 * * *").In("Asia/Shanghai"), Handler: takes(0),
	})...)
	planned := 0
	require.Eventually(t, func() bool {
		for _, c := range f.server.Log() {
			planned += keysWith(c, "/plan/")
		}
		return planned == n
	}, time.Minute, 20*time.Millisecond)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int(m.HeapAlloc)
}
