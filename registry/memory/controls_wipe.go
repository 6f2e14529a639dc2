package memory

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// Wipe replaces the server by an empty one, like a store that starts with an empty directory:
// all entries and sessions are gone, and commit numbers begin lower than before. Watchers
// continue with a Snapshot.
func (s *Server) Wipe() { s.replaceEntries(nil, 0) }

// Save returns a function that brings back the present entries and commit number, like a store
// that is restored from a backup. All sessions are gone then, with the keys that they own.
// Watchers continue with a Snapshot.
func (s *Server) Save() (rewind func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := make(map[registry.Key]*node, len(s.nodes))
	for key, n := range s.nodes {
		if n.entry.Owner == "" {
			kept := *n
			saved[key] = &kept
		}
	}
	seq := s.seq
	return func() { s.replaceEntries(saved, seq) }
}

// replaceEntries replaces all entries by those of saved, and ends all sessions. The next commits
// follow seq, or if it is 0, a number below the present one.
func (s *Server) replaceEntries(saved map[registry.Key]*node, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeFaults(func() {
		for _, m := range s.all() {
			for _, x := range slices.Clone(m.sessions) {
				s.expire(x)
			}
		}
		for _, n := range slices.Collect(maps.Values(s.nodes)) {
			s.removeNode(n)
		}
		for _, d := range s.touched {
			clear(d.fresh)
			d.fresh = d.fresh[:0]
		}
		s.touched = s.touched[:0]
		if seq == 0 {
			seq = rand.Uint64N(s.seq/2 + 1)
		}
		s.seq = seq
		s.salt = rand.Uint64() | 1<<63 // a Rev of the replaced store names no commit of this one
		for key, n := range saved {
			restored := *n
			restored.dir = s.dir(key.Dir())
			restored.dir.nodes[key] = &restored
			s.nodes[key] = &restored
		}
		for _, m := range s.all() {
			m.restartWatchers()
			s.refreshView(m)
		}
	}, s.all()...)
}
