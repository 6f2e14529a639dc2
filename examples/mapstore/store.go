package mapstore

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Store stands for the server, with no more than a backend needs: rows that are written under one
// revision, leases with their rows, and the changes after a revision.
type Store struct {
	mu       sync.Mutex
	revision uint64
	rows     map[string]row
	leases   map[string]*lease
	history  []change      // the newest changes
	compact  uint64        // changes up to this revision are forgotten
	changed  chan struct{} // closed, and replaced, at each commit
	lastID   int
}

type row struct {
	value             []byte
	created, modified uint64
	lease             string // "" without one
}

type change struct {
	revision uint64
	key      string
	row      row
	deleted  bool
}

type lease struct {
	ttl   time.Duration
	timer *time.Timer // ends the lease
}

// historyLength is the number of changes that the store remembers.
const historyLength = 1000

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{rows: map[string]row{}, leases: map[string]*lease{}, changed: make(chan struct{})}
}

// tx is a transaction: it reads rows, and collects writes.
type tx struct {
	store  *Store
	writes []change
}

func (t *tx) get(key string) (row, bool) {
	r, ok := t.store.rows[key]
	return r, ok
}

func (t *tx) leaseExists(id string) bool { return t.store.leases[id] != nil }

func (t *tx) put(key string, value []byte, lease string) {
	t.writes = append(t.writes, change{key: key, row: row{value: value, lease: lease}})
}

func (t *tx) delete(key string) { t.writes = append(t.writes, change{key: key, deleted: true}) }

// update calls f in a transaction, and commits its writes at one revision unless f returns an
// error.
func (s *Store) update(f func(*tx) error) (revision uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{store: s}
	if err := f(t); err != nil {
		return 0, err
	}
	s.commit(t.writes)
	return s.revision, nil
}

// commit applies writes at the next revision. The lock is held.
func (s *Store) commit(writes []change) {
	if len(writes) == 0 {
		return
	}
	s.revision++
	for _, w := range writes {
		w.revision = s.revision
		old, exists := s.rows[w.key]
		w.row.created, w.row.modified = s.revision, s.revision
		if exists {
			w.row.created = old.created
		}
		if w.deleted {
			delete(s.rows, w.key)
		} else {
			s.rows[w.key] = w.row
		}
		s.history = append(s.history, w)
	}
	if n := len(s.history) - historyLength; n > 0 {
		s.compact = s.history[n-1].revision
		s.history = slices.Delete(s.history, 0, n)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Store) get(key string) (row, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.rows[key]
	return r, ok
}

// scan returns all rows whose key is accepted, and the revision of this state.
func (s *Store) scan(accept func(key string) bool) (map[string]row, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := maps.Clone(s.rows)
	maps.DeleteFunc(found, func(key string, _ row) bool { return !accept(key) })
	return found, s.revision
}

var errCompacted = errors.New("the history is gone")

// since returns the changes after a revision, and the revision that they reach. wait is closed
// when there are more.
func (s *Store) since(revision uint64) (changes []change, reached uint64, wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision < s.compact {
		return nil, 0, nil, errCompacted
	}
	i, _ := slices.BinarySearchFunc(s.history, revision+1, func(c change, r uint64) int {
		if c.revision < r {
			return -1
		}
		return 1
	})
	return slices.Clone(s.history[i:]), s.revision, s.changed, nil
}

// grant creates a lease that ends, with its rows, ttl after its last renewal.
func (s *Store) grant(ttl time.Duration) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	id = "lease-" + strconv.Itoa(s.lastID)
	s.leases[id] = &lease{ttl: ttl, timer: time.AfterFunc(ttl, func() { s.revoke(id) })}
	return id
}

// renew reports false if there is no such lease.
func (s *Store) renew(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l != nil {
		l.timer.Reset(l.ttl)
	}
	return l != nil
}

// Expire ends a session as if its TTL had run out, for tests.
func (s *Store) Expire(id registry.SessionID) { s.revoke(string(id)) }

// revoke ends a lease and deletes its rows, at one revision.
func (s *Store) revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		return
	}
	l.timer.Stop()
	delete(s.leases, id)
	var writes []change
	for key, r := range s.rows {
		if r.lease == id {
			writes = append(writes, change{key: key, deleted: true})
		}
	}
	s.commit(writes)
}
