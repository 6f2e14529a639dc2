package memory

import (
	"fmt"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// Fill makes the store full until free is called: transactions that create or set a key, and
// OpenSession, fail with ErrQuota. Reads, deletions, watches and open sessions continue.
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

// Revoke withdraws the permissions of the clients of that name, until restore is called:
// reads, transactions, new watches and new sessions fail with ErrPermission, and watchers end
// with it. Open sessions are still renewed, and can be closed.
func (s *Server) Revoke(name string) (restore func()) {
	return s.startFault(name, func(m *machine) {
		m.revoked++
		for _, w := range m.watchers {
			w.end(s.permissionError(m))
		}
	}, func(m *machine) { m.revoked-- })
}

// refusal returns the error by which the server refuses t, of m, before it checks conditions,
// or nil.
func (s *Server) refusal(m *machine, t registry.Txn) error {
	if err := s.permissionError(m); err != nil {
		return err
	}
	for i := range t.Then {
		if t.Then[i].Kind != registry.OpDelete {
			return s.quotaError()
		}
	}
	return nil
}

// permissionError returns ErrPermission if the permissions of m are revoked.
func (s *Server) permissionError(m *machine) error {
	if m.revoked == 0 {
		return nil
	}
	return fmt.Errorf("%w: the permissions of %s are revoked", registry.ErrPermission, m.name)
}

func (s *Server) quotaError() error {
	if s.full == 0 {
		return nil
	}
	return fmt.Errorf("%w: the store has no space left", registry.ErrQuota)
}
