// Package cost measures what a call costs by means that neither the load of the machine nor instrumentation changes:
// by the bytes that it allocates, and by its processor time as a multiple of that of a reference in the same process.
package cost

import (
	"encoding/json"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"
)

// The cost that a call may have for an input of n bytes, besides that of freeBytes more.
const (
	maxTimesValid = 100      // the processor time of json.Valid for as many bytes, times this
	maxTimesBytes = 400      // the bytes that it allocates for each: "{},", an element of 300 bytes, may be copied
	maxAllocated  = 64 << 20 // the bytes that it allocates whatever the input
	freeBytes     = 64 << 10
)

// Allocated returns how many bytes f allocates, to within a megabyte. It does not stop other goroutines, whose
// allocations count too.
func Allocated(f func()) uint64 {
	before := allocated()
	f()
	return allocated() - before
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// CPU returns the processor time of f, which must not start goroutines, on this goroutine's thread. Where the system has
// no such clock, it is the time that f takes.
func CPU(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	f()
	return threadTime() - before
}

// Least returns the least processor time of several calls of f.
func Least(calls int, f func()) time.Duration {
	least := CPU(f)
	for range calls - 1 {
		least = min(least, CPU(f))
	}
	return least
}

// Require fails if f costs more for an input of n bytes than the constants above allow. It measures again before it
// fails: the first call may have collected garbage of others.
func Require(t testing.TB, what string, n int, f func()) {
	t.Helper()
	var cpu time.Duration
	bytes := Allocated(func() { cpu = CPU(f) })
	if limit := min(maxTimesBytes*uint64(n+freeBytes), maxAllocated); bytes > limit {
		t.Fatalf("%s: %d bytes allocated for %d bytes, at most %d", what, bytes, n, limit)
	}
	limit := func(unit time.Duration) time.Duration {
		return maxTimesValid * unit * time.Duration(n+freeBytes) / freeBytes
	}
	if unit := Unit(); cpu > limit(unit) {
		unit, cpu = max(unit, measureValid()), min(cpu, Least(3, f))
		if cpu > limit(unit) {
			t.Fatalf("%s: %v of processor time for %d bytes, at most %v", what, cpu, n, limit(unit))
		}
	}
}

// Unit returns the processor time in which json.Valid reads 64 KiB, as measured once: some 0.2 ms, and ten times as much with the
// race detector.
func Unit() time.Duration { return unit() }

var unit = sync.OnceValue(measureValid)

func measureValid() time.Duration {
	const item = `{"shards":"0-3,7","epoch":1,"fire":"2026-05-05T00:00:00Z","later":[true,null,-1.5e3]}`
	text := []byte("[" + strings.Repeat(item+",", freeBytes/len(item)) + item + "]")
	const repeats = 10 // where threadTime is coarse
	return Least(5, func() {
		for range repeats {
			if !json.Valid(text) {
				panic("the reference is no JSON")
			}
		}
	}) / repeats
}
