package memory

import (
	"fmt"

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
	return y.resting && (y.timer == nil || !y.timer.Stop())
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
