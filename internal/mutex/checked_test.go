//go:build rotacheck

package mutex

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// under locks the second mutex under the first.
func under(first, second sync.Locker) {
	first.Lock()
	defer first.Unlock()
	second.Lock()
	defer second.Unlock()
}

func reports(do func()) (all []string) {
	defer func(fail func(string)) { Fail = fail }(Fail)
	Fail = func(report string) { all = append(all, report) }
	do()
	return all
}

func TestMutex_OrderOfTwo(t *testing.T) {
	var a, b Mutex
	var c RWMutex
	assert.Empty(t, reports(func() { under(&a, &b); under(&a, &b); under(&b, &c); under(&a, &c) }))
	assert.Len(t, reports(func() { under(&b, &a) }), 1, "the opposite order")
	var d, e, f Mutex
	assert.Empty(t, reports(func() { under(&d, &e); under(&e, &f) }))
	assert.Len(t, reports(func() { under(&f, &d) }), 1, "a circle of three")
}

func TestMutex_AnotherPackage(t *testing.T) {
	var a Mutex
	lock := func(by string) {
		mu.Lock()
		holders[goroutine()] = []held{{1 << 60, by}}
		mu.Unlock()
		a.Lock()
		a.Unlock() //nolint:staticcheck // nothing is guarded
		endLock(1<<60, goroutine())
	}
	assert.Len(t, reports(func() { lock(module + "executor.(*Executor).Register") }), 1)
	assert.Empty(t, reports(func() { lock(module + "internal/mutex.(*feed[...]).drain") }))
}

func TestCheckFree_KnowsWhichGoroutineHolds(t *testing.T) {
	var m Mutex
	var rw RWMutex
	check := func() { CheckFree("f") }
	assert.Empty(t, reports(check))
	m.Lock()
	assert.Len(t, reports(check), 1)
	assert.Empty(t, reports(func() {
		var other sync.WaitGroup
		other.Go(check)
		other.Wait()
	}))
	m.Unlock()
	rw.RLock()
	assert.Len(t, reports(check), 1)
	rw.RUnlock()
	rw.Lock()
	assert.Len(t, reports(check), 1)
	rw.Unlock()
	var by sync.WaitGroup
	m.Lock()
	by.Go(m.Unlock) // another goroutine may unlock it
	by.Wait()
	assert.Empty(t, reports(check))
}
