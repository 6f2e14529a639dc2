package memory

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Commit is an entry of the log: an executed transaction, or the beginning or end of a
// session. Its slices and values are shared and must not be changed.
type Commit struct {
	// Rev is the Rev of the commit. If no key was changed, because the transaction was
	// refused or had no operations, it is that of the last commit before.
	Rev    registry.Rev
	At     time.Time
	Client string // the name of the client

	Txn  registry.TxnID
	If   []registry.Cond
	Then []registry.Op
	Err  error // of a refused transaction: ErrConflict, with the item, ErrSessionLost, ErrQuota or ErrPermission

	Opened registry.SessionID // the session that began
	Ended  registry.SessionID // the session that ended, by Close or expiry
	Gone   []registry.Key     // the deleted owned keys of that session, sorted
}

// Changed reports whether the store was changed.
func (c Commit) Changed() bool {
	return c.Err == nil && len(c.Then) > 0 || c.Opened != "" || c.Ended != ""
}

// Record makes the server keep a log from now on, which grows until Log drains it.
func (s *Server) Record() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recording = true
}

// Log returns and removes the entries recorded since the last call of Log, in the order of
// execution, which is that of Rev.
func (s *Server) Log() []Commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// Dump returns all stored entries, sorted by key. No fault affects it.
func (s *Server) Dump() []registry.Entry {
	var all []*registry.Entry
	s.mu.RLock()
	for _, n := range s.nodes {
		all = append(all, n.entry)
	}
	s.mu.RUnlock()
	return copySorted(all)
}

func (s *Server) recordTxn(m *machine, t registry.Txn, o outcome) {
	if !s.recording {
		return
	}
	_, err := o.result(t)
	t = cloneTxn(t)
	s.log = append(s.log, Commit{
		Rev: o.rev, At: time.Now(), Client: m.name,
		Txn: t.ID, If: t.If, Then: t.Then, Err: err,
	})
}

func (s *Server) recordSession(x *session, c Commit) {
	if !s.recording {
		return
	}
	c.Rev, c.At, c.Client = s.rev(), time.Now(), x.client.machine.name
	s.log = append(s.log, c)
}

// cloneTxn copies t with its values, for uses that outlast the call of Txn.
func cloneTxn(t registry.Txn) registry.Txn {
	t.If = slices.Clone(t.If)
	t.Then = slices.Clone(t.Then)
	for i := range t.Then {
		t.Then[i].Value = slices.Clone(t.Then[i].Value)
	}
	return t
}
