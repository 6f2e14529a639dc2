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

// commitOps commits operations without conditions.
func (t *test) commitOps(r registry.Registry, ops ...registry.Op) registry.Rev {
	t.Helper()
	return t.commit(r, registry.Txn{Then: ops})
}

func (t *test) create(r registry.Registry, key registry.Key, value string) registry.Rev {
	t.Helper()
	return t.commitOps(r, registry.Create(key, []byte(value)))
}

// createOwned creates an owned key of session s.
func (t *test) createOwned(r registry.Registry, key registry.Key, s registry.Session) registry.Rev {
	t.Helper()
	return t.commitOps(r, registry.CreateOwned(key, []byte("of "+string(s.ID())), s.ID()))
}

// assertHolds fails the case unless the conditions hold now.
func (t *test) assertHolds(r registry.Registry, conds ...registry.Cond) {
	t.Helper()
	require.NoError(t, t.checkHolds(r, conds...))
}

// checkHolds returns an error unless the conditions hold now.
func (t *test) checkHolds(r registry.Registry, conds ...registry.Cond) error {
	if _, err := r.Txn(t.ctx, registry.Txn{If: conds}); err != nil {
		return fmt.Errorf("%v should hold: %w", conds, err)
	}
	return nil
}

// assertConflict commits x and fails the case unless it conflicts at item index.
func (t *test) assertConflict(r registry.Registry, x registry.Txn, index int) {
	t.Helper()
	_, err := r.Txn(t.ctx, x)
	require.ErrorIs(t, err, registry.ErrConflict, "%v then %v", x.If, x.Then)
	var conflict *registry.ConflictError
	require.ErrorAs(t, err, &conflict, "an ErrConflict names the item that did not hold")
	require.Equal(t, index, conflict.Index, "index of the item that did not hold; the error is %v", err)
}

// getFresh returns the current entry at key.
func (t *test) getFresh(r registry.Registry, key registry.Key) registry.Entry {
	t.Helper()
	e, err := r.Get(t.ctx, key, fresh)
	require.NoError(t, err, "get %s", key)
	require.Equal(t, key, e.Key)
	return e
}

// assertAbsent fails the case unless the keys are absent now.
func (t *test) assertAbsent(r registry.Registry, keys ...registry.Key) {
	t.Helper()
	for _, key := range keys {
		_, err := r.Get(t.ctx, key, fresh)
		require.ErrorIs(t, err, registry.ErrNotFound, "get %s", key)
	}
}

// checkAbsent returns an error unless key is absent.
func (t *test) checkAbsent(r registry.Registry, key registry.Key) error {
	_, err := r.Get(t.ctx, key, fresh)
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s still exists", key)
	}
	return err
}

// listFresh returns the current entries of dir.
func (t *test) listFresh(r registry.Registry, dir registry.Key) []registry.Entry {
	t.Helper()
	l, err := r.List(t.ctx, dir, fresh)
	require.NoError(t, err, "list %q", dir)
	return l.Entries
}

// openSession opens a session with the TTL of the backend.
func (t *test) openSession(r registry.Registry) registry.Session {
	t.Helper()
	s, err := r.OpenSession(t.ctx, registry.SessionOptions{TTL: t.ttl})
	require.NoError(t, err, "open a session")
	return s
}

// partition cuts a machine off until heal, at most until the end of the case.
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

// stateOf returns the state of s without its safe-until.
func stateOf(s registry.Session) registry.SessionState {
	st, _ := s.State()
	return st
}

// inState returns an error unless s is in one of the states.
func inState(s registry.Session, states ...registry.SessionState) error {
	now := stateOf(s)
	for _, want := range states {
		if now == want {
			return nil
		}
	}
	return fmt.Errorf("session is %v, not %v", now, states)
}
