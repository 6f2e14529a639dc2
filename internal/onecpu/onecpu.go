// Package onecpu keeps the race detector from crashing in synctest bubbles.
//
// Timers of a bubble that fire together may run on several threads at once, but share one
// context of the race detector, which then fails an internal check and ends the process
// (golang/go#78156, open as of Go 1.26.8). With one CPU there is only one such thread. The
// detector still finds races: it follows the order of synchronization, not of execution.
package onecpu

import (
	"runtime"
	"sync"
)

var (
	mu      sync.Mutex
	holders int
	before  int // GOMAXPROCS before the first Hold
)

// Hold makes the process run Go code on one CPU at a time until every holder has called its
// release, once. Without the race detector it does nothing. It must not be called in a bubble.
func Hold() (release func()) {
	if !raceEnabled {
		return func() {}
	}
	mu.Lock()
	defer mu.Unlock()
	if holders++; holders == 1 {
		before = runtime.GOMAXPROCS(1)
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if holders--; holders == 0 {
			runtime.GOMAXPROCS(before)
		}
	}
}
