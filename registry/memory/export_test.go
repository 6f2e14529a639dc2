package memory

import (
	"fmt"
	"runtime"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Pending returns how many changes w keeps for its reader.
func Pending(w registry.Watcher) int {
	x := w.(*watcher)
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.pending)
}

// AtRest reports that nothing is scheduled for x.
func AtRest(x registry.Session) bool {
	y := x.(*session)
	y.server.mu.RLock()
	defer y.server.mu.RUnlock()
	return y.resting && (y.timer == nil || !y.timer.Stop()) // Stop tells whether it was set
}

// NeverRest has x simulated from now on: something is under way to it that never arrives.
func NeverRest(x registry.Session) {
	y := x.(*session)
	y.server.mu.Lock()
	defer y.server.mu.Unlock()
	now := time.Now()
	y.unrest(now)
	never := now.Add(1 << 60)
	y.flights = append(y.flights, flight{sent: never, due: never})
	y.run(now)
}

// OnCollect calls f when w is garbage.
func OnCollect(w registry.Watcher, f func()) {
	runtime.AddCleanup(w.(*watcher), func(struct{}) { f() }, struct{}{})
}

// CheckNothingLeft returns what a server without keys, watchers and sessions still holds.
func CheckNothingLeft(s *Server) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := len(s.nodes) + len(s.dirs) + len(s.sessions) + len(s.queue) + len(s.touched)
	for _, m := range s.machines {
		n += len(m.watchers) + len(m.sessions) + len(m.missing) + len(m.holds)
	}
	if n > 0 {
		return fmt.Errorf("%d things are left: %+v", n, s)
	}
	return nil
}
