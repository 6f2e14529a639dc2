package explore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// exStore is a registry as a value: it is changed by replacing what it holds, so that the
// states of an exploration can share it.
type exStore struct {
	seq     uint64
	entries []exEntry            // by key
	live    []registry.SessionID // sessions
	opened  int                  // how many there have been
}

type exEntry struct {
	key      registry.Key
	value    string
	created  uint64
	modified uint64
	owner    registry.SessionID
	txn      registry.TxnID
}

func (e *exEntry) entry() registry.Entry {
	return registry.Entry{
		Key: e.key, Value: []byte(e.value), Created: registry.Rev{Seq: e.created}, Modified: registry.Rev{Seq: e.modified},
		Owner: e.owner, Txn: e.txn,
	}
}

func (s *exStore) find(key registry.Key) (int, bool) {
	return slices.BinarySearchFunc(s.entries, key, func(e exEntry, k registry.Key) int { return strings.Compare(string(e.key), string(k)) })
}

func (s *exStore) get(key registry.Key) (exEntry, bool) {
	i, ok := s.find(key)
	if !ok {
		return exEntry{}, false
	}
	return s.entries[i], true
}

// list returns the children of a directory. The slice is shared.
func (s *exStore) list(dir registry.Key) []exEntry {
	from, _ := s.find(dir + "/")
	to := from
	for to < len(s.entries) && s.entries[to].key.Dir() == dir {
		to++
	}
	return s.entries[from:to:to]
}

func (s *exStore) alive(id registry.SessionID) bool { return slices.Contains(s.live, id) }

func (s *exStore) open() registry.SessionID {
	s.opened++
	id := registry.SessionID("s" + string(rune('0'+s.opened)))
	s.live = append(slices.Clip(s.live), id)
	return id
}

// end ends a session, and with it what it owns.
func (s *exStore) end(id registry.SessionID) {
	s.seq++
	s.live = slices.DeleteFunc(slices.Clone(s.live), func(o registry.SessionID) bool { return o == id })
	s.entries = slices.DeleteFunc(slices.Clone(s.entries), func(e exEntry) bool { return e.owner == id })
}

// apply applies t or says why not. What waived says of an item of t does not count.
func (s *exStore) apply(t registry.Txn, waived func(t *registry.Txn, item int) bool) (registry.Rev, error) {
	for i, c := range t.If {
		if !s.holds(c) && !waived(&t, i) {
			return registry.Rev{}, &registry.ConflictError{Index: i, Item: c.String()}
		}
	}
	for i, op := range t.Then {
		if !s.fits(op) && !waived(&t, len(t.If)+i) {
			if op.Kind == registry.OpCreateOwned && !s.alive(op.Session) {
				return registry.Rev{}, registry.ErrSessionLost
			}
			return registry.Rev{}, &registry.ConflictError{Index: len(t.If) + i, Item: op.String()}
		}
	}
	s.seq++
	s.entries = slices.Clone(s.entries)
	for _, op := range t.Then {
		i, found := s.find(op.Key)
		switch {
		case op.Kind == registry.OpDelete && !found:
		case op.Kind == registry.OpDelete:
			s.entries = slices.Delete(s.entries, i, i+1)
		default:
			e := exEntry{key: op.Key, value: string(op.Value), created: s.seq, modified: s.seq, owner: op.Session, txn: t.ID}
			if found {
				e.created, e.owner = s.entries[i].created, s.entries[i].owner
				s.entries[i] = e
			} else {
				s.entries = slices.Insert(s.entries, i, e)
			}
		}
	}
	return registry.Rev{Seq: s.seq}, nil
}

func (s *exStore) holds(c registry.Cond) bool {
	switch c.Kind {
	case registry.CondAlive:
		return s.alive(c.Session)
	case registry.CondDead:
		return !s.alive(c.Session)
	}
	e, found := s.get(c.Key)
	if c.Kind == registry.CondAbsent {
		return !found
	}
	return found && e.modified == c.Rev.Seq
}

func (s *exStore) fits(op registry.Op) bool {
	e, found := s.get(op.Key)
	switch op.Kind {
	case registry.OpCreate:
		return !found
	case registry.OpCreateOwned:
		return !found && s.alive(op.Session)
	}
	return found && e.modified == op.Rev.Seq
}

// exDesk is a store as production code sees it: it may read, and what it wants to commit
// is taken down and not done.
type exDesk struct {
	registry.Registry // nothing else is called
	store             *exStore
	wanted            *registry.Txn
}

// errTaken is what production code is told of its transaction.
var errTaken = errors.New("taken down, to be sent")

func (d *exDesk) Limits() registry.Limits { return registry.PortableLimits }

func (d *exDesk) Get(_ context.Context, key registry.Key, _ registry.ReadOptions) (registry.Entry, error) {
	e, ok := d.store.get(key)
	if !ok {
		return registry.Entry{}, registry.ErrNotFound
	}
	return e.entry(), nil
}

func (d *exDesk) List(_ context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	out := registry.Listing{Rev: registry.Rev{Seq: d.store.seq}, Atomic: true}
	for _, e := range d.store.list(dir) {
		out.Entries = append(out.Entries, e.entry())
	}
	return out, nil
}

func (d *exDesk) Txn(_ context.Context, t registry.Txn) (registry.Rev, error) {
	if d.wanted == nil {
		d.wanted = &t
	}
	return registry.Rev{}, errTaken
}

// exRetry is a store for registry.Apply to settle a request whose reply was lost.
type exRetry struct {
	exDesk
	apply func(registry.Txn) (registry.Rev, error)
	asked bool
}

func (r *exRetry) Txn(_ context.Context, t registry.Txn) (registry.Rev, error) {
	if !r.asked {
		r.asked = true
		return registry.Rev{}, registry.ErrUnknownOutcome
	}
	return r.apply(t)
}
