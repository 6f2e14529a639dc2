// Package onecpu keeps the race detector from crashing in synctest bubbles.
//
// Timers of a bubble that fire together may run on several threads at once, but share one
// context of the race detector, which then fails a check of its own and ends the process
// (golang/go#78156, open as of Go 1.26.8). With one CPU there is one such thread. Races are
// found all the same: the detector goes by what happens before what, not by what happens at
// the same time.
package onecpu

import (
	"runtime"
	"sync"
)

var (
	mu      sync.Mutex
	holders int
	before  int
)

// Hold makes the process run Go code on one CPU at a time until all who hold have called
// release, each once. Without the race detector it does nothing. It is not to be called in
// a bubble.
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
