//go:build rotacheck

package mutex

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Fail reports a broken rule. It ends the process, since whatever calls user code contains its panics.
var Fail = func(report string) {
	fmt.Fprintf(os.Stderr, "mutex: %s\n%s", report, debug.Stack())
	os.Exit(2)
}

// held is a mutex that a goroutine holds.
type held struct {
	id uint64
	by string // the function that locked it
}

var (
	mu      sync.Mutex
	ids     uint64                             // of the last mutex
	holders = map[uint64][]held{}              // by goroutine
	after   = map[uint64]map[uint64]struct{}{} // the mutexes that were locked while another was held, by that one
)

// Mutex is a sync.Mutex whose holder is known.
type Mutex struct {
	of         sync.Mutex
	id, holder uint64
}

// Lock locks m.
func (m *Mutex) Lock() {
	holder := beginLock(&m.id)
	m.of.Lock()
	m.holder = holder
}

// Unlock unlocks m.
func (m *Mutex) Unlock() {
	endLock(m.id, m.holder)
	m.of.Unlock()
}

// RWMutex is a sync.RWMutex whose holders are known. A goroutine that locks it for reading also unlocks it.
type RWMutex struct {
	of         sync.RWMutex
	id, holder uint64
}

// Lock locks m for writing.
func (m *RWMutex) Lock() {
	holder := beginLock(&m.id)
	m.of.Lock()
	m.holder = holder
}

// Unlock ends Lock.
func (m *RWMutex) Unlock() {
	endLock(m.id, m.holder)
	m.of.Unlock()
}

// RLock locks m for reading.
func (m *RWMutex) RLock() {
	beginLock(&m.id)
	m.of.RLock()
}

// RUnlock ends RLock.
func (m *RWMutex) RUnlock() {
	endLock(m.id, goroutine())
	m.of.RUnlock()
}

// CheckFree fails if this goroutine holds a mutex. It is about to call what.
func CheckFree(what string) {
	mu.Lock()
	all := holders[goroutine()]
	mu.Unlock()
	if len(all) > 0 {
		Fail(fmt.Sprintf("%s is called under a mutex that %s has locked", what, all[len(all)-1].by))
	}
}

// beginLock records that this goroutine is about to lock a mutex, and checks the order.
func beginLock(id *uint64) (holder uint64) {
	holder = goroutine()
	pc, _, _, _ := runtime.Caller(2)
	next := held{by: runtime.FuncForPC(pc).Name()}
	mu.Lock()
	if *id == 0 {
		ids++
		*id = ids
	}
	next.id = *id
	wrong := ""
	for _, h := range holders[holder] {
		if packageOf(h.by) != packageOf(next.by) && !downward[[2]string{packageOf(h.by), packageOf(next.by)}] {
			wrong = fmt.Sprintf("%s locks a mutex under that of another package, which %s has locked", next.by, h.by)
		}
		if after[h.id] == nil {
			after[h.id] = map[uint64]struct{}{}
		}
		after[h.id][next.id] = struct{}{}
		if leadsTo(next.id, h.id) {
			wrong = fmt.Sprintf("%s locks a mutex under that which %s has locked: the opposite order occurs too", next.by, h.by)
		}
	}
	holders[holder] = append(holders[holder], next)
	mu.Unlock()
	if wrong != "" {
		Fail(wrong)
	}
	return holder
}

// endLock records that a goroutine does not hold a mutex any more.
func endLock(id, holder uint64) {
	mu.Lock()
	defer mu.Unlock()
	all := holders[holder]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].id == id {
			all = append(all[:i], all[i+1:]...)
			break
		}
	}
	if holders[holder] = all; len(all) == 0 {
		delete(holders, holder)
	}
}

// leadsTo reports whether a mutex was locked under another, or under one that was, and so on. mu is held.
func leadsTo(from, to uint64) bool {
	if from == to {
		return true
	}
	for next := range after[from] {
		if leadsTo(next, to) {
			return true
		}
	}
	return false
}

// module is the path of this module, with a slash.
var module = strings.TrimSuffix(reflect.TypeFor[Mutex]().PkgPath(), "internal/mutex")

// packageOf returns the path of a function's package within the module.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/') + 1
	dot := strings.IndexByte(function[slash:], '.')
	return strings.TrimPrefix(function[:slash+dot], module)
}

// goroutine returns the number of this goroutine, which begins its stack trace.
func goroutine() uint64 {
	var text [64]byte
	number, _, _ := bytes.Cut(bytes.TrimPrefix(text[:runtime.Stack(text[:], false)], []byte("goroutine ")), []byte(" "))
	n, err := strconv.ParseUint(string(number), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
