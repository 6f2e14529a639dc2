package memory

import (
	"bytes"
	"fmt"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// outcome is the outcome of a transaction. Errors are built from it outside the lock.
type outcome struct {
	rev     registry.Rev
	failed  int   // the item that did not hold, or -1
	dead    bool  // that item is a CreateOwned whose session has ended
	refused error // refusal before the conditions were checked, or nil
	cause   error // why the outcome is unknown to the caller, or nil
}

func (o outcome) result(t registry.Txn) (registry.Rev, error) {
	switch {
	case o.cause != nil:
		return registry.Rev{}, fmt.Errorf("commit: %w", backend.Unknown(o.cause))
	case o.refused != nil:
		return registry.Rev{}, fmt.Errorf("commit: %w", o.refused)
	case o.dead:
		return registry.Rev{}, fmt.Errorf("%w: %s", registry.ErrSessionLost, t.Then[o.failed-len(t.If)])
	case o.failed >= 0:
		return registry.Rev{}, registry.Conflict(t, o.failed)
	}
	return o.rev, nil
}

// commit applies t, which has passed CheckTxn and has an ID, or changes nothing.
func (s *Server) commit(m *machine, t registry.Txn) outcome {
	o := s.checkTxn(m, t)
	applies := o.failed < 0 && o.refused == nil && len(t.Then) > 0
	if applies {
		s.seq++
		for i := range t.Then {
			s.applyOp(&t.Then[i], t.ID)
		}
		s.publish()
	}
	o.rev = s.rev()
	if applies {
		s.refreshView(m)
	}
	m.countTxn(t, o)
	s.recordTxn(m, t, o)
	return o
}

// checkTxn determines whether t, of m, can be applied now.
func (s *Server) checkTxn(m *machine, t registry.Txn) outcome {
	if err := s.refusal(m, t); err != nil {
		return outcome{failed: -1, refused: err}
	}
	for i := range t.If {
		if !s.condHolds(&t.If[i]) {
			return outcome{failed: i}
		}
	}
	for i := range t.Then {
		o := &t.Then[i]
		if o.Kind == registry.OpCreateOwned && s.sessions[o.Session] == nil {
			return outcome{failed: len(t.If) + i, dead: true}
		}
		if !s.opHolds(o) {
			return outcome{failed: len(t.If) + i}
		}
	}
	return outcome{failed: -1}
}

func (s *Server) condHolds(c *registry.Cond) bool {
	switch c.Kind {
	case registry.CondAbsent:
		return s.nodes[c.Key] == nil
	case registry.CondAt:
		return s.isAt(c.Key, c.Rev)
	case registry.CondAlive:
		return s.sessions[c.Session] != nil
	default: // CondDead: CheckTxn lets no other pass
		return s.sessions[c.Session] == nil
	}
}

func (s *Server) opHolds(o *registry.Op) bool {
	switch o.Kind {
	case registry.OpSet, registry.OpDelete:
		return s.isAt(o.Key, o.Rev)
	default: // OpCreate, OpCreateOwned
		return s.nodes[o.Key] == nil
	}
}

func (s *Server) isAt(key registry.Key, rev registry.Rev) bool {
	n := s.nodes[key]
	return n != nil && n.entry.Modified == rev
}

// applyOp applies o at the commit s.seq. Values are copied: the caller may reuse its memory
// when Txn returns.
func (s *Server) applyOp(o *registry.Op, id registry.TxnID) {
	switch o.Kind {
	case registry.OpDelete:
		n := s.nodes[o.Key]
		if owner := s.sessions[n.entry.Owner]; owner != nil {
			delete(owner.owned, o.Key)
		}
		s.removeNode(n)
	case registry.OpSet:
		n := s.nodes[o.Key]
		e := *n.entry
		e.Value, e.Modified, e.Txn = bytes.Clone(o.Value), s.rev(), id
		n.entry, n.written = &e, s.writeTime()
		s.recordChange(n.dir, e.Key, &e)
	default: // OpCreate, OpCreateOwned
		e := &registry.Entry{
			Key: o.Key, Value: bytes.Clone(o.Value),
			Created: s.rev(), Modified: s.rev(), Owner: o.Session, Txn: id,
		}
		if o.Kind == registry.OpCreate {
			e.Owner = "" // even if the Op has a Session
		} else {
			s.sessions[o.Session].addOwned(o.Key)
		}
		n := &node{dir: s.dir(o.Key.Dir()), entry: e, written: s.writeTime()}
		s.nodes[o.Key], n.dir.nodes[o.Key] = n, n
		s.recordChange(n.dir, o.Key, e)
	}
}

// removeNode removes n at the commit s.seq.
func (s *Server) removeNode(n *node) {
	key := n.entry.Key
	delete(s.nodes, key)
	delete(n.dir.nodes, key)
	s.recordChange(n.dir, key, nil)
	s.dropDir(n.dir)
}
