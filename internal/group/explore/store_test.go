package explore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// storeModel is the content of a store as a value. A change replaces its slices, so worlds share them.
type storeModel struct {
	seq            uint64
	entries        []storedEntry        // by key
	liveSessions   []registry.SessionID // sessions
	sessionsOpened int                  // number of sessions so far
}

type storedEntry struct {
	key      registry.Key
	value    string
	created  uint64
	modified uint64
	owner    registry.SessionID
	txn      registry.TxnID
}

func (e *storedEntry) entry() registry.Entry {
	return registry.Entry{
		Key: e.key, Value: []byte(e.value), Created: registry.Rev{Seq: e.created}, Modified: registry.Rev{Seq: e.modified},
		Owner: e.owner, Txn: e.txn,
	}
}

func (s *storeModel) indexOf(key registry.Key) (int, bool) {
	return slices.BinarySearchFunc(s.entries, key, func(e storedEntry, k registry.Key) int { return strings.Compare(string(e.key), string(k)) })
}

func (s *storeModel) get(key registry.Key) (storedEntry, bool) {
	i, ok := s.indexOf(key)
	if !ok {
		return storedEntry{}, false
	}
	return s.entries[i], true
}

// list returns the children of a directory. The slice is shared.
func (s *storeModel) list(dir registry.Key) []storedEntry {
	from, _ := s.indexOf(dir + "/")
	to := from
	for to < len(s.entries) && s.entries[to].key.Dir() == dir {
		to++
	}
	return s.entries[from:to:to]
}

func (s *storeModel) alive(id registry.SessionID) bool { return slices.Contains(s.liveSessions, id) }

func (s *storeModel) openSession() registry.SessionID {
	s.sessionsOpened++
	id := registry.SessionID("s" + string(rune('0'+s.sessionsOpened)))
	s.liveSessions = append(slices.Clip(s.liveSessions), id)
	return id
}

// expireSession ends a session and deletes the keys that it owns.
func (s *storeModel) expireSession(id registry.SessionID) {
	s.seq++
	s.liveSessions = slices.DeleteFunc(slices.Clone(s.liveSessions), func(o registry.SessionID) bool { return o == id })
	s.entries = slices.DeleteFunc(slices.Clone(s.entries), func(e storedEntry) bool { return e.owner == id })
}

// apply commits t or returns the conflict. It ignores the guards for which removed returns true.
func (s *storeModel) apply(t registry.Txn, removed func(t *registry.Txn, item int) bool) (registry.Rev, error) {
	for i, c := range t.If {
		if !s.conditionHolds(c) && !removed(&t, i) {
			return registry.Rev{}, &registry.ConflictError{Index: i, Item: c.String()}
		}
	}
	for i, op := range t.Then {
		if !s.operationFits(op) && !removed(&t, len(t.If)+i) {
			if op.Kind == registry.OpCreateOwned && !s.alive(op.Session) {
				return registry.Rev{}, registry.ErrSessionLost
			}
			return registry.Rev{}, &registry.ConflictError{Index: len(t.If) + i, Item: op.String()}
		}
	}
	s.seq++
	s.entries = slices.Clone(s.entries)
	for _, op := range t.Then {
		i, found := s.indexOf(op.Key)
		switch {
		case op.Kind == registry.OpDelete && !found:
		case op.Kind == registry.OpDelete:
			s.entries = slices.Delete(s.entries, i, i+1)
		default:
			e := storedEntry{key: op.Key, value: string(op.Value), created: s.seq, modified: s.seq, owner: op.Session, txn: t.ID}
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

func (s *storeModel) conditionHolds(c registry.Cond) bool {
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

func (s *storeModel) operationFits(op registry.Op) bool {
	e, found := s.get(op.Key)
	switch op.Kind {
	case registry.OpCreate:
		return !found
	case registry.OpCreateOwned:
		return !found && s.alive(op.Session)
	}
	return found && e.modified == op.Rev.Seq
}

// recordingRegistry is the registry that the library's functions get: they read the store, and it records
// the first transaction instead of committing it.
type recordingRegistry struct {
	registry.Registry // other methods are not called
	store             *storeModel
	recorded          *registry.Txn
}

// errRecorded is the error of a transaction that was recorded.
var errRecorded = errors.New("the transaction was recorded")

func (d *recordingRegistry) Limits() registry.Limits { return registry.PortableLimits }

func (d *recordingRegistry) Get(_ context.Context, key registry.Key, _ registry.ReadOptions) (registry.Entry, error) {
	e, ok := d.store.get(key)
	if !ok {
		return registry.Entry{}, registry.ErrNotFound
	}
	return e.entry(), nil
}

func (d *recordingRegistry) List(_ context.Context, dir registry.Key, _ registry.ReadOptions) (registry.Listing, error) {
	out := registry.Listing{Rev: registry.Rev{Seq: d.store.seq}, Atomic: true}
	for _, e := range d.store.list(dir) {
		out.Entries = append(out.Entries, e.entry())
	}
	return out, nil
}

func (d *recordingRegistry) Txn(_ context.Context, t registry.Txn) (registry.Rev, error) {
	if d.recorded == nil {
		d.recorded = &t
	}
	return registry.Rev{}, errRecorded
}

// lostReplyRegistry loses the first reply, so that registry.Apply repeats the request.
type lostReplyRegistry struct {
	recordingRegistry
	apply     func(registry.Txn) (registry.Rev, error)
	replyLost bool
}

func (r *lostReplyRegistry) Txn(_ context.Context, t registry.Txn) (registry.Rev, error) {
	if !r.replyLost {
		r.replyLost = true
		return registry.Rev{}, registry.ErrUnknownOutcome
	}
	return r.apply(t)
}
