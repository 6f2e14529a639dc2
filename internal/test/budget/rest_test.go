package budget_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
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
	job.Schedule = executor.Cron("0 3 * * *").In("Asia/Shanghai")
	f.start("a", jobs(n, job)...)
	planned := 0
	require.Eventually(t, func() bool {
		for _, c := range s.follow() {
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
