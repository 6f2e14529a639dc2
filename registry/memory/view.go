package memory

import "github.com/rota-dev/rota/registry"

// view is the state of a store member that is isolated or behind. It is replaced, never
// changed.
type view struct {
	entries map[registry.Key]*registry.Entry
	rev     registry.Rev
}

// Isolate disconnects the store member that serves the clients of that name from its peers,
// until heal is called. The connections of the clients stay open. The member answers plain
// reads from its last state. Other calls wait for heal, their context or CallTimeout, as in a
// Partition: sessions are not renewed, watchers pause, and a transaction has an unknown
// outcome and was not applied.
//
// So a client can lose its session on a working connection, while its plain reads succeed
// and return old entries.
func (s *Server) Isolate(name string) (heal func()) {
	return s.startFault(name, func(m *machine) {
		m.isolated++
		s.updateView(m)
	}, func(m *machine) {
		m.isolated--
		s.updateView(m)
		m.renewSessions()
	})
}

// Lag makes the store member that serves the clients of that name fall behind, until catchUp
// is called: it answers plain reads from its last state. When a client of that name makes a
// Fresh read, commits, or receives a change from a watcher, the member catches up once and
// falls behind again, so that no client sees time go back or misses its own write. Each time
// costs a copy of all stored entries.
func (s *Server) Lag(name string) (catchUp func()) {
	return s.startFault(name, func(m *machine) {
		m.lagging++
		s.updateView(m)
	}, func(m *machine) {
		m.lagging--
		s.updateView(m)
	})
}

// updateView gives m a view of the current state if its member is isolated or behind, and
// removes the view if it is neither.
func (s *Server) updateView(m *machine) {
	switch {
	case m.isolated+m.lagging == 0:
		m.view.Store(nil)
	case m.view.Load() == nil:
		m.view.Store(s.newView())
	}
}

func (s *Server) newView() *view {
	v := &view{entries: make(map[registry.Key]*registry.Entry, len(s.nodes)), rev: s.rev()}
	for key, n := range s.nodes {
		v.entries[key] = n.entry
	}
	return v
}

// viewOf returns the view that answers a read of m, or nil for the current state. The
// server's lock is held, for reading at least.
func (s *Server) viewOf(m *machine, fresh bool) *view {
	if fresh {
		s.refreshView(m)
		return nil
	}
	return m.view.Load()
}

// refreshView brings the view of m up to date, because its clients are about to observe a
// newer state. The server's lock is held, for reading at least. The member of m has peers, or
// had when that state was sent: Isolate stops fresh reads, commits and batches.
func (s *Server) refreshView(m *machine) {
	if m.view.Load() != nil {
		m.view.Store(s.newView())
	}
}

// lockAndRefreshView is refreshView for callers that do not hold the server's lock.
func (s *Server) lockAndRefreshView(m *machine) {
	if m.view.Load() == nil {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.refreshView(m)
}

// children returns the entries in dir, in no order.
func (v *view) children(dir registry.Key) []*registry.Entry {
	var found []*registry.Entry
	for key, e := range v.entries {
		if key.Dir() == dir {
			found = append(found, e)
		}
	}
	return found
}
