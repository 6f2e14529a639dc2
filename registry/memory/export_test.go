package memory

import (
	"fmt"
	"runtime"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Pending returns the number of changes that w holds for its reader.
func Pending(w registry.Watcher) int {
	x := w.(*watcher)
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.pending)
}

// Delayed reports whether the changes that w holds arrive later.
func Delayed(w registry.Watcher) bool {
	x := w.(*watcher)
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.due.IsZero()
}

// AtRest reports whether x rests, without a timer.
func AtRest(x registry.Session) bool {
	y := x.(*session)
	y.server.mu.RLock()
	defer y.server.mu.RUnlock()
	return y.resting && (y.timer == nil || !y.timer.Stop()) // Stop reports whether it was set
}

// StopTimer stops the timer of x and reports whether it was set.
func StopTimer(x registry.Session) bool {
	y := x.(*session)
	y.server.mu.Lock()
	defer y.server.mu.Unlock()
	return y.timer != nil && y.timer.Stop()
}

// NeverRest makes every renewal of x simulated from now on, by a message to x that never
// arrives.
func NeverRest(x registry.Session) {
	y := x.(*session)
	y.server.mu.Lock()
	defer y.server.mu.Unlock()
	now := time.Now()
	y.stopResting(now)
	never := now.Add(1 << 60)
	y.flights = append(y.flights, flight{sent: never, due: never})
	y.runUntil(now)
}

// OnCollect calls f when w is garbage collected.
func OnCollect(w registry.Watcher, f func()) {
	runtime.AddCleanup(w.(*watcher), func(struct{}) { f() }, struct{}{})
}

// TakeSnapshot makes w read a Snapshot, as Next does when no change is pending.
func TakeSnapshot(w registry.Watcher) registry.Batch { return w.(*watcher).takeSnapshot() }

// RetainedChanges returns the number of published changes and of their directories that s refers
// to.
func RetainedChanges(s *Server) (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, d := range s.touched[:cap(s.touched)] {
		if d != nil {
			n++
		}
	}
	for _, d := range s.dirs {
		for _, c := range d.fresh[:cap(d.fresh)] {
			if c != (change{}) {
				n++
			}
		}
	}
	return n
}

// CheckNothingLeft returns an error if a server without keys, watchers and sessions still
// holds objects.
func CheckNothingLeft(s *Server) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.nodes) + len(s.dirs) + len(s.sessions) + len(s.queue) + len(s.touched)
	for _, m := range s.machines {
		n += len(m.watchers) + len(m.sessions) + len(m.missing) + len(m.holds)
	}
	if n > 0 {
		return fmt.Errorf("%d objects are left: %+v", n, s)
	}
	return nil
}
