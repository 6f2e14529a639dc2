package main

import "fmt"

// Environment variables of a mutated test binary.
const (
	selectVariable  = "ROTA_MUTANT"         // the number of the fault
	reachedVariable = "ROTA_MUTANT_REACHED" // a file for the numbers of the faults whose code runs
	cpuVariable     = "ROTA_MUTANT_CPU"     // the limit of processor time
)

// switchSource returns the source of the functions that the mutated code calls, and of a
// watchdog that ends a run without progress. The watchdog measures processor time, which does
// not depend on the load of the machine, and is a timer instead of a goroutine, because tests
// look for goroutines that the package has left behind.
func switchSource(pkg string) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	mutantSelected, _ = strconv.Atoi(os.Getenv(%q))
	mutantReachedFile = os.Getenv(%q)
	mutantCPU, _      = time.ParseDuration(os.Getenv(%q))
	mutantReached     [1 << 16]atomic.Bool // by number
)

func init() {
	const tick, busy, longestIdle, memory = 100 * time.Millisecond, 2 * time.Millisecond, 20, 4 << 30
	var before time.Duration
	var idle int
	var watchdog *time.Timer
	watchdog = time.AfterFunc(time.Hour, func() {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
		if idle++; used-before > busy {
			idle = 0
		}
		before = used
		if used > mutantCPU || idle > longestIdle || u.Maxrss > memory>>10 {
			fmt.Println(%q)
			os.Exit(3)
		}
		watchdog.Reset(tick)
	})
	watchdog.Reset(tick)
}

func mutantOn(n int) bool {
	if mutantReachedFile != "" && !mutantReached[n].Load() {
		mutantRecordReached(n)
	}
	return n == mutantSelected
}

func mutantRecordReached(n int) {
	if mutantReached[n].Swap(true) {
		return
	}
	f, err := os.OpenFile(mutantReachedFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, n)
	f.Close()
}

func mutantReversed(n int, cond bool) bool { return cond != mutantOn(n) }

func mutantZero[T any](p *T) {
	var zero T
	*p = zero
}

type mutantInteger interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type mutantNumber interface{ mutantInteger | ~float32 | ~float64 }

func mutantChoose[T any](n int, fault, sound T) T {
	if mutantOn(n) {
		return fault
	}
	return sound
}

func mutantLess[T cmp.Ordered](n int, x, y T) bool           { return mutantChoose(n, x <= y, x < y) }
func mutantLessOrEqual[T cmp.Ordered](n int, x, y T) bool    { return mutantChoose(n, x < y, x <= y) }
func mutantGreater[T cmp.Ordered](n int, x, y T) bool        { return mutantChoose(n, x >= y, x > y) }
func mutantGreaterOrEqual[T cmp.Ordered](n int, x, y T) bool { return mutantChoose(n, x > y, x >= y) }
func mutantPlus[T cmp.Ordered](n int, x, y T) T              { return mutantChoose(n, x, x+y) }
func mutantMinus[T mutantNumber](n int, x, y T) T            { return mutantChoose(n, x+y, x-y) }
func mutantTimes[T mutantNumber](n int, x, y T) T            { return mutantChoose(n, x, x*y) }
func mutantDivide[T mutantNumber](n int, x, y T) T           { return mutantChoose(n, x*y, x/y) }
func mutantRemainder[T mutantInteger](n int, x, y T) T       { return mutantChoose(n, x, x%%y) }
`, pkg, selectVariable, reachedVariable, cpuVariable, noProgress)
}

// noProgress is the message of the watchdog.
const noProgress = "mutant: no progress, or too much processor time or memory"
