package budget_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// The cost of an idle job in one process, including the memory server's copy of its
// records.
func TestBudget_TenThousandJobsInOneProcess(t *testing.T) {
	few, fewHeap := measureAtRest(t, 10)
	many, manyHeap := measureAtRest(t, 10_000)
	perJob := (manyHeap - fewHeap) / (10_000 - 10)
	t.Logf("goroutines: %d with 10 jobs, %d with 10,000; heap per job: %d bytes", few, many, perJob)
	assert.LessOrEqual(t, many-few, 20)
	assert.LessOrEqual(t, perJob, 10<<10)
}

// measureAtRest returns the goroutines and the heap with n assigned jobs.
func measureAtRest(t *testing.T, n int) (goroutines, heap int) {
	s := newMemory()
	f := newFleet(t, s)
	defer f.stop()
	job := idle(1)
	job.Schedule = schedule.Cron("0 3 * * *").In("Asia/Shanghai")
	f.start("a", jobs(n, job)...)
	planned := 0
	require.Eventually(t, func() bool {
		for _, c := range s.follow() {
			planned += keysWith(c, "/plan/")
		}
		return planned == n
	}, time.Minute, 20*time.Millisecond)
	return runtime.NumGoroutine(), heapInUse()
}

// heapInUse returns the bytes of reachable objects.
func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A shard costs some bytes between its runs, and a fire leaves nothing behind.
func TestBudget_HeapOfShardsAndFires(t *testing.T) {
	defer onecpu.Hold()()
	const most = 10_000
	heapAfter := func(shards int, fires ...int) (heap []int) {
		synctest.Test(t, func(t *testing.T) {
			s := newMemory()
			f := newFleet(t, s)
			defer f.stop()
			job := idle(shards)
			job.Schedule = schedule.Every(time.Second)
			f.start("a", job)
			f.awaitAssigned(1)
			for _, n := range fires {
				sleepUntilHalf(time.Second)
				time.Sleep(time.Duration(n-1) * time.Second)
				s.count(t) // drains the store's log
				heap = append(heap, heapInUse())
			}
		})
		return heap
	}
	one := heapAfter(1, 10, 1000)
	many := heapAfter(most, 3, 10)
	perShard := (many[0] - one[0]) / most
	perFire := (one[1] - one[0]) / 1000
	t.Logf("heap per shard: %d bytes; heap per fire: %d bytes, and per fire of a shard of 10,000: %d", perShard, perFire, (many[1]-many[0])/10/most)
	assert.LessOrEqual(t, perShard, 128)
	assert.LessOrEqual(t, perFire, 16)
	assert.LessOrEqual(t, (many[1]-many[0])/10/most, 1)
}

// Thousands of shards may fire at one instant, and each run costs processor time before the last one begins. Most of it is
// that of allocations. The more batches a busy machine makes of the ends, the more it allocates: the least of some fires counts.
func TestBudget_AllocationsOfARun(t *testing.T) {
	defer onecpu.Hold()()
	const shards, fires = 10_000, 10
	synctest.Test(t, func(t *testing.T) {
		s := newMemory()
		f := newFleet(t, s)
		defer f.stop()
		job := idle(shards)
		job.Schedule = schedule.Every(time.Second)
		f.start("a", job)
		f.awaitAssigned(1)
		sleepUntilHalf(time.Second)
		time.Sleep(2 * time.Second)
		s.count(t)
		allocations, bytes := math.Inf(1), math.Inf(1)
		for range fires {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			time.Sleep(time.Second)
			runtime.ReadMemStats(&after)
			allocations = min(allocations, float64(after.Mallocs-before.Mallocs)/shards)
			bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/shards)
		}
		t.Logf("a run of a job of %d shards: %.1f allocations, %.0f bytes", shards, allocations, bytes)
		assert.LessOrEqual(t, allocations, 6.5)
		assert.LessOrEqual(t, bytes, 1408.0)
	})
}

// A group bounds its jobs by the member record, which holds their names.
func TestBudget_MemberRecordOfManyNames(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		like    string
		name    func(i int) string
		perName float64
	}{
		{"numbered", func(i int) string { return fmt.Sprintf("job-%05d", i) }, 2.5},
		{"with 8 random digits", func(int) string { return fmt.Sprintf("billing-report-%08x", random.Uint32()) }, 6.5},
	} {
		t.Run(c.like, func(t *testing.T) {
			const most = 20_000
			m := record.Member{Name: "a", Session: "s"}
			for i := range most {
				m.Jobs = append(m.Jobs, c.name(i))
			}
			slices.Sort(m.Jobs)
			value, err := record.Encode(m)
			require.NoError(t, err)
			t.Logf("%d names in %d bytes", most, len(value))
			assert.LessOrEqual(t, float64(len(value)), c.perName*most)
			assert.LessOrEqual(t, len(value), registry.PortableLimits.ValueBytes)
		})
	}
}
