package memory

import "github.com/rota-dev/rota/registry"

// view is what a member of the store has that is isolated or behind. It is never changed,
// only replaced.
type view struct {
	entries map[registry.Key]*registry.Entry
	rev     registry.Rev
}

// Isolate cuts the member of the store that the clients of that name are connected to off
// from its peers, until heal. The connection stands, so that nobody is told. The member
// answers plain reads from what it had; all else waits, for heal, its context or
// CallTimeout, and goes as in a Partition: sessions are not renewed, watchers are quiet, a
// transaction has an unknown outcome and was not applied.
//
// It is what makes a client with a sound connection lose its session, while what it reads
// tells it that all is well.
func (s *Server) Isolate(name string) (heal func()) {
	return s.impose(name, func(m *machine) {
		m.isolated++
		s.lookBack(m)
	}, func(m *machine) {
		m.isolated--
		s.lookBack(m)
		m.renew()
	})
}

// Lag makes the member of the store that the clients of that name are connected to fall
// behind, until catchUp: plain reads are answered from what it had. It catches up at once,
// to fall behind again, when a client of that name makes a Fresh read, commits something or
// is told of a change by a watcher, so that nobody sees time go back or misses a write of
// his own. That costs a copy of all that is stored, each time.
func (s *Server) Lag(name string) (catchUp func()) {
	return s.impose(name, func(m *machine) {
		m.lagging++
		s.lookBack(m)
	}, func(m *machine) {
		m.lagging--
		s.lookBack(m)
	})
}

// lookBack gives m a view of what is stored now, if its circumstances ask for one.
func (s *Server) lookBack(m *machine) {
	switch {
	case m.isolated+m.lagging == 0:
		m.view.Store(nil)
	case m.view.Load() == nil:
		m.view.Store(s.look())
	}
}

func (s *Server) look() *view {
	v := &view{entries: make(map[registry.Key]*registry.Entry, len(s.nodes)), rev: s.rev()}
	for key, n := range s.nodes {
		v.entries[key] = n.entry
	}
	return v
}

// viewOf returns the view that a read of m is answered from, or nil for what is stored.
// The server's lock is held, for reading at least.
func (s *Server) viewOf(m *machine, fresh bool) *view {
	if fresh {
		s.advance(m)
		return nil
	}
	return m.view.Load()
}

// advance brings m's view up to date, because its clients are about to learn of something
// newer. The server's lock is held, for reading at least.
func (s *Server) advance(m *machine) {
	if m.view.Load() != nil && m.isolated == 0 {
		m.view.Store(s.look())
	}
}

// advanceFor is advance for those who do not hold the server's lock.
func (s *Server) advanceFor(m *machine) {
	if m.view.Load() == nil {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.advance(m)
}

// children returns what is in dir, in no order.
func (v *view) children(dir registry.Key) []*registry.Entry {
	var found []*registry.Entry
	for key, e := range v.entries {
		if key.Dir() == dir {
			found = append(found, e)
		}
	}
	return found
}
