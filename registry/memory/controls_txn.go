package memory

import (
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// LoseReply drops the replies to the next n transactions of the clients of that name: the
// server applies or refuses them, and the callers get ErrUnknownOutcome at once.
func (s *Server) LoseReply(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine(name).loseReplies += max(n, 0)
}

// LoseRequest drops the next n transactions of the clients of that name: they are not
// applied, and the callers get ErrUnknownOutcome at once.
func (s *Server) LoseRequest(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machine(name).loseRequests += max(n, 0)
}

// HoldCommit holds back the next transaction of the clients of that name. Its caller gets
// ErrUnknownOutcome at once; release makes the server apply it, if its conditions hold by
// then. If there was no transaction yet, release cancels the hold. Calling release twice is
// legal.
//
// If several of these controls are active, HoldCommit acts first, then LoseRequest, then
// LoseReply.
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

// hold is one HoldCommit: late is nil until a transaction is held.
type hold struct {
	late *message
}

// serveTxn executes a transaction of m that has arrived, under the fault controls of this
// file.
func (s *Server) serveTxn(m *machine, t registry.Txn) outcome {
	switch {
	case len(m.holds) > 0:
		h := m.holds[0]
		m.holds = m.holds[1:]
		t = cloneTxn(t)
		h.late = &message{
			server: s, machine: m, answer: make(chan error, 1), // never received
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
