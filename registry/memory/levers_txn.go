package memory

import (
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// LoseReply makes the server apply the next n transactions of the clients of that name, or
// refuse them, and tell nobody: the callers get ErrUnknownOutcome at once.
func (s *Server) LoseReply(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine(name).loseReplies += max(n, 0)
}

// LoseRequest makes the next n transactions of the clients of that name get lost: they are
// not applied, and the callers get ErrUnknownOutcome at once.
func (s *Server) LoseRequest(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine(name).loseRequests += max(n, 0)
}

// HoldCommit holds up the next transaction of the clients of that name: its caller gets
// ErrUnknownOutcome at once, and release lets the server apply it then, if its conditions
// hold. Before there was one, release takes the hold away. Calling it again does nothing.
//
// Transactions are held first, then lost, then applied without a reply.
func (s *Server) HoldCommit(name string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(name)
	h := &hold{}
	m.holds = append(m.holds, h)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.late == nil {
			m.holds = slices.DeleteFunc(m.holds, func(o *hold) bool { return o == h })
			return
		}
		h.late.arrive()
	})
}

// hold waits for a transaction, then for its release.
type hold struct {
	late *message
}

// serveTxn is what the server does with a transaction of m that has arrived.
func (s *Server) serveTxn(m *machine, t registry.Txn) outcome {
	switch {
	case len(m.holds) > 0:
		h := m.holds[0]
		m.holds = m.holds[1:]
		t = cloneTxn(t)
		h.late = &message{
			server: s, machine: m, answer: make(chan error, 1), // nobody waits for it
			serve: func() error {
				s.commit(m, t)
				return nil
			},
		}
		return outcome{failed: -1, cause: errHeld}
	case m.loseRequests > 0:
		m.loseRequests--
		return outcome{failed: -1, cause: errRequestLost}
	case m.loseReplies > 0:
		m.loseReplies--
		s.commit(m, t)
		return outcome{failed: -1, cause: errReplyLost}
	}
	return s.commit(m, t)
}
