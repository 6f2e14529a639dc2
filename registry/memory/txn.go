package memory

import (
	"bytes"
	"fmt"

	"github.com/rota-dev/rota/registry"
)

// commit applies t, which has passed CheckTxn, or changes nothing.
func (s *Server) commit(t registry.Txn) (registry.Rev, error) {
	if err := s.judge(t); err != nil {
		return registry.Rev{}, err
	}
	if len(t.Then) == 0 {
		return s.rev(), nil
	}
	s.seq++
	for i := range t.Then {
		s.apply(&t.Then[i], t.ID)
	}
	return s.rev(), nil
}

// judge returns why t cannot be applied to what is stored now, or nil.
func (s *Server) judge(t registry.Txn) error {
	for i := range t.If {
		if !s.holds(&t.If[i]) {
			return registry.Conflict(t, i)
		}
	}
	for i := range t.Then {
		o := &t.Then[i]
		if o.Kind == registry.OpCreateOwned && s.sessions[o.Session] == nil {
			return fmt.Errorf("%w: %s", registry.ErrSessionLost, o)
		}
		if !s.applies(o) {
			return registry.Conflict(t, len(t.If)+i)
		}
	}
	return nil
}

func (s *Server) holds(c *registry.Cond) bool {
	switch c.Kind {
	case registry.CondAbsent:
		return s.nodes[c.Key] == nil
	case registry.CondAt:
		return s.at(c.Key, c.Rev)
	case registry.CondAlive:
		return s.sessions[c.Session] != nil
	default: // CondDead: CheckTxn lets no other pass
		return s.sessions[c.Session] == nil
	}
}

func (s *Server) applies(o *registry.Op) bool {
	switch o.Kind {
	case registry.OpSet, registry.OpDelete:
		return s.at(o.Key, o.Rev)
	default: // OpCreate, OpCreateOwned
		return s.nodes[o.Key] == nil
	}
}

func (s *Server) at(key registry.Key, rev registry.Rev) bool {
	n := s.nodes[key]
	return n != nil && n.entry.Modified == rev
}

// apply makes the change o at the commit s.seq.
func (s *Server) apply(o *registry.Op, id registry.TxnID) {
	if o.Kind == registry.OpDelete {
		n := s.nodes[o.Key]
		if n.entry.Owner != "" {
			delete(s.sessions[n.entry.Owner].owned, o.Key)
		}
		s.remove(n)
		return
	}
	e := &registry.Entry{Key: o.Key, Value: bytes.Clone(o.Value), Modified: s.rev(), Txn: id}
	if o.Kind == registry.OpSet {
		n := s.nodes[o.Key]
		e.Key, e.Created, e.Owner = n.entry.Key, n.entry.Created, n.entry.Owner
		n.entry = e
		n.dir.changed(e.Key, e, e.Modified)
		return
	}
	e.Created, e.Owner = e.Modified, o.Session
	n := &node{dir: s.dir(o.Key.Dir()), entry: e}
	s.nodes[e.Key], n.dir.nodes[e.Key] = n, n
	if o.Kind == registry.OpCreateOwned {
		s.sessions[o.Session].own(e.Key)
	}
	n.dir.changed(e.Key, e, e.Modified)
}

// remove takes n away at the commit s.seq.
func (s *Server) remove(n *node) {
	key := n.entry.Key
	delete(s.nodes, key)
	delete(n.dir.nodes, key)
	n.dir.changed(key, nil, s.rev())
	s.dropDir(n.dir)
}
