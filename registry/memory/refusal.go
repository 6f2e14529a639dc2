package memory

import (
	"fmt"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// Fill makes the server have no room for more, until free: transactions that create or set
// anything and the opening of sessions fail with ErrQuota. Reads, deletions, watches and
// the sessions that are there go on.
func (s *Server) Fill() (free func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.full--
	})
}

// Revoke takes the rights of the clients of that name away, until restore: reads,
// transactions, new watches and new sessions fail with ErrPermission, and watchers end with
// it. The sessions that are there are renewed, and can be closed.
func (s *Server) Revoke(name string) (restore func()) {
	return s.impose(name, func(m *machine) {
		m.revoked++
		for _, w := range m.watchers {
			w.end(s.forbids(m))
		}
	}, func(m *machine) { m.revoked-- })
}

// refuses returns why the server does not even judge a transaction of m, or nil.
func (s *Server) refuses(m *machine, t registry.Txn) error {
	if err := s.forbids(m); err != nil {
		return err
	}
	for i := range t.Then {
		if t.Then[i].Kind != registry.OpDelete {
			return s.lacksRoom()
		}
	}
	return nil
}

// forbids returns why m may do nothing, or nil.
func (s *Server) forbids(m *machine) error {
	if m.revoked == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s has no rights now", registry.ErrPermission, m.name)
}

func (s *Server) lacksRoom() error {
	if s.full == 0 {
		return nil
	}
	return fmt.Errorf("%w: no room is left", registry.ErrQuota)
}
