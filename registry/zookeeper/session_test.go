package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
)

func TestOpenSession_RefusesATTLAboveTheLimitOfTheServer(t *testing.T) {
	c := open(t, newNamespace())
	_, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 2 * time.Minute})
	require.ErrorIs(t, err, errTTL)
	require.False(t, registry.Retryable(err))
	require.ErrorContains(t, err, "1m0s")
}

func TestSession_IsEndedAtTheServerWhenLost(t *testing.T) {
	ns := newNamespace()
	c := open(t, ns)
	s := newSession(t, c).(*session)
	feed := s.Starve()
	defer feed()
	<-s.Lost()
	require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
	eventually(t, func() bool { // the owner ends it at the server long before the TTL ends
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead(s.ID())}})
		return err == nil
	})
	require.True(t, s.link.isOver())
	_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, s.ID())}})
	require.ErrorIs(t, err, registry.ErrSessionLost)
}

func TestSession_ChecksItsZnodeOnANewConnection(t *testing.T) {
	c := open(t, newNamespace())
	s := newSession(t, c).(*session)
	mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	require.NoError(t, connectRaw(t).Delete(s.path, -1))
	s.link.hangUp()
	<-s.Lost()
	require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
	eventually(t, func() bool { // the owner ends it at the server long before the TTL ends
		_, err := c.Get(t.Context(), "~k", fresh)
		return errors.Is(err, registry.ErrNotFound)
	})
}

func TestSession_CloseWhoseRequestIsLostEndsTheSession(t *testing.T) {
	ns := newNamespace()
	script, other := startScript(t), open(t, ns)
	c := script.open(t, ns)
	s, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 30 * time.Second})
	require.NoError(t, err)
	mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	script.before(zkwire.Close, script.proxy.Cut)
	require.NoError(t, s.Close(t.Context()))
	script.requireDone(t)
	_, err = other.Get(t.Context(), "~k", fresh)
	require.ErrorIs(t, err, registry.ErrNotFound)
}
