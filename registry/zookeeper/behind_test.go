package zookeeper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// behindFixture is a handle that has read a key in its old state, and another handle, which
// writes the new one.
type behindFixture struct {
	*scriptedServer
	c, other *Client
	old      registry.Rev
}

func newBehindFixture(t *testing.T) *behindFixture {
	t.Helper()
	ns := newNamespace()
	f := &behindFixture{scriptedServer: startScript(t), other: open(t, ns)}
	f.c = f.open(t, ns)
	f.old = mustCommit(t, f.other, registry.Create("d/k", []byte("old")))
	f.requireReads(t, "old", fresh)
	_, err := f.c.List(t.Context(), "d", fresh)
	require.NoError(t, err)
	f.fallBehind()
	return f
}

// change writes the new state past the proxy.
func (f *behindFixture) change(t *testing.T) registry.Rev {
	t.Helper()
	return mustCommit(t, f.other, registry.Set("d/k", f.old, []byte("new")))
}

func (f *behindFixture) requireReads(t *testing.T, want string, o registry.ReadOptions) {
	t.Helper()
	e, err := f.c.Get(t.Context(), "d/k", o)
	require.NoError(t, err)
	require.Equal(t, want, string(e.Value))
}

// requireNoRead fails the test if a read succeeds while the member is behind.
func (f *behindFixture) requireNoRead(t *testing.T, o registry.ReadOptions) {
	t.Helper()
	e, err := f.c.Get(soon(t), "d/k", o)
	require.ErrorIs(t, err, errStillBehind, "read %q", e.Value)
}

const (
	baseConn  = 1 // number of the first connection of a handle
	laterConn = 2 // number of the next one
)

func TestRead(t *testing.T) {
	plain := registry.ReadOptions{}
	t.Run("Fresh is not answered by a leader that was deposed", func(t *testing.T) {
		f := newBehindFixture(t)
		f.setMode(baseConn, deposed)
		f.change(t)
		f.requireNoRead(t, fresh)
		f.setMode(baseConn, upToDate)
		f.requireReads(t, "new", fresh)
	})
	t.Run("Fresh is made again when the connection breaks after it has caught up", func(t *testing.T) {
		f := newBehindFixture(t)
		f.change(t)
		f.setMode(laterConn, lagging)
		f.before(getData, f.proxy.Cut)
		f.requireReads(t, "new", fresh)
		f.requireDone(t)
		require.Equal(t, laterConn, f.made())
	})
	t.Run("does not go back in time on a member that lags", func(t *testing.T) {
		f := newBehindFixture(t)
		f.change(t)
		f.requireReads(t, "new", fresh)
		f.setMode(laterConn, lagging)
		f.proxy.Cut()
		f.requireReads(t, "new", plain)
		require.Equal(t, laterConn, f.made())
	})
	t.Run("does not go back in time on a leader that was deposed", func(t *testing.T) {
		f := newBehindFixture(t)
		f.change(t)
		f.requireReads(t, "new", fresh)
		f.setMode(laterConn, deposed)
		f.proxy.Cut()
		f.requireNoRead(t, plain)
		f.setMode(laterConn, upToDate)
		f.requireReads(t, "new", plain)
	})
	t.Run("sees a batch that came over another connection", func(t *testing.T) {
		f := newBehindFixture(t)
		w, err := f.c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		f.setMode(baseConn, lagging)
		f.change(t)
		b, err := w.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, "new", string(b.Puts[0].Value))
		f.requireReads(t, "new", plain)
	})
	t.Run("sees a commit of its own that was made over another connection", func(t *testing.T) {
		f := newBehindFixture(t)
		s := newSession(t, f.c)
		f.setMode(baseConn, lagging)
		mustCommit(t, f.c, registry.Set("d/k", f.old, []byte("new")), registry.CreateOwned("~k", nil, s.ID()))
		f.requireReads(t, "new", plain)
	})
}

func TestWatch(t *testing.T) {
	next := func(t *testing.T, w registry.Watcher) registry.Batch {
		t.Helper()
		b, err := w.Next(t.Context())
		require.NoError(t, err)
		return b
	}
	t.Run("begins with no state older than one the handle has read", func(t *testing.T) {
		f := newBehindFixture(t)
		f.change(t)
		f.requireReads(t, "new", fresh)
		f.setMode(laterConn, lagging)
		w, err := f.c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		require.Equal(t, "new", string(next(t, w).Puts[0].Value))
		require.Equal(t, laterConn, f.made())
	})
	t.Run("misses no change that the directory's last watcher did not wait for", func(t *testing.T) {
		f := newBehindFixture(t)
		first, err := f.c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		next(t, first)
		reading, closed := make(chan struct{}), make(chan struct{})
		f.before(getData, func() {
			close(reading)
			<-closed
		})
		f.change(t)
		<-reading
		require.NoError(t, first.Close())
		second, err := f.c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		close(closed)
		require.Equal(t, "new", string(next(t, second).Puts[0].Value))
	})
}

func TestTxn_OnAMemberThatLags(t *testing.T) {
	t.Run("requires a Rev that the member does not have yet", func(t *testing.T) {
		f := newBehindFixture(t)
		f.setMode(baseConn, lagging)
		rev := f.change(t)
		_, err := f.c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At("d/k", rev)}})
		require.NoError(t, err)
	})
	t.Run("conflicts at a key that the member does not have yet", func(t *testing.T) {
		f := newBehindFixture(t)
		s := newSession(t, f.c)
		_, err := f.c.Get(t.Context(), "d/later", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
		f.fallBehind()
		f.setMode(baseConn, lagging)
		mustCommit(t, f.other, registry.Create("d/later", nil))
		_, err = f.c.Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.CreateOwned("~k", nil, s.ID()), registry.Create("d/later", nil),
		}})
		var conflict *registry.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, 1, conflict.Index)
	})
}
