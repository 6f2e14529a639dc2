package conformance

import (
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

var fresh = registry.ReadOptions{Fresh: true}

// commit applies x and returns its Rev.
func (t *test) commit(r registry.Registry, x registry.Txn) registry.Rev {
	t.Helper()
	rev, err := r.Txn(t.ctx, x)
	require.NoError(t, err, "commit %v", x.Then)
	require.False(t, rev.IsZero(), "the Rev of a commit is zero")
	return rev
}

// do is commit for operations without conditions.
func (t *test) do(r registry.Registry, ops ...registry.Op) registry.Rev {
	t.Helper()
	return t.commit(r, registry.Txn{Then: ops})
}

func (t *test) create(r registry.Registry, key registry.Key, value string) registry.Rev {
	t.Helper()
	return t.do(r, registry.Create(key, []byte(value)))
}

// own creates an owned key.
func (t *test) own(r registry.Registry, key registry.Key, s registry.Session) registry.Rev {
	t.Helper()
	return t.do(r, registry.CreateOwned(key, []byte("of "+string(s.ID())), s.ID()))
}

// holds fails the case unless the conditions hold now.
func (t *test) holds(r registry.Registry, conds ...registry.Cond) {
	t.Helper()
	_, err := r.Txn(t.ctx, registry.Txn{If: conds})
	require.NoError(t, err, "%v should hold", conds)
}

// refused sends x and fails the case unless it conflicts at item index.
func (t *test) refused(r registry.Registry, x registry.Txn, index int) {
	t.Helper()
	_, err := r.Txn(t.ctx, x)
	require.ErrorIs(t, err, registry.ErrConflict, "%v then %v", x.If, x.Then)
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict, "an ErrConflict tells which item did not hold")
	require.Equal(t, index, conflict.Index, "the item that did not hold; the error is %v", err)
}

// get returns the entry at key as of now.
func (t *test) get(r registry.Registry, key registry.Key) registry.Entry {
	t.Helper()
	e, err := r.Get(t.ctx, key, fresh)
	require.NoError(t, err, "get %s", key)
	require.Equal(t, key, e.Key)
	return e
}

// absent fails the case unless keys do not exist now.
func (t *test) absent(r registry.Registry, keys ...registry.Key) {
	t.Helper()
	for _, key := range keys {
		_, err := r.Get(t.ctx, key, fresh)
		require.ErrorIs(t, err, registry.ErrNotFound, "get %s", key)
	}
}

// gone returns nil if key does not exist.
func (t *test) gone(r registry.Registry, key registry.Key) error {
	_, err := r.Get(t.ctx, key, fresh)
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is still there", key)
	}
	return err
}

// list returns the entries of dir as of now.
func (t *test) list(r registry.Registry, dir registry.Key) []registry.Entry {
	t.Helper()
	l, err := r.List(t.ctx, dir, fresh)
	require.NoError(t, err, "list %q", dir)
	return l.Entries
}

// session opens a session with the TTL of the backend.
func (t *test) session(r registry.Registry) registry.Session {
	t.Helper()
	s, err := r.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
	require.NoError(t, err, "open a session")
	return s
}

// partition cuts a machine off, at the latest until the end of the case.
func (t *test) partition(machine string, c Cut) (heal func()) {
	t.Helper()
	heal = t.store.Partition(machine, c)
	t.Cleanup(heal)
	return heal
}

func keysOf(entries []registry.Entry) []registry.Key {
	keys := make([]registry.Key, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys
}

// state returns the state of s alone.
func state(s registry.Session) registry.SessionState {
	st, _ := s.State()
	return st
}

// is returns nil once s is in one of the states.
func is(s registry.Session, states ...registry.SessionState) error {
	now := state(s)
	for _, want := range states {
		if now == want {
			return nil
		}
	}
	return fmt.Errorf("session is %v, not %v", now, states)
}
