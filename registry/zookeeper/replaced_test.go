package zookeeper

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// A server refuses a client that has seen a later state than its own.
func TestReplacedStore(t *testing.T) {
	server := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	replace := func(t *testing.T) { require.NoError(t, server.Members()[0].Replace(t.Context())) }
	openOn := func(t *testing.T, namespace string, change ...func(*Options)) *Client {
		return open(t, namespace, append(change, func(o *Options) { o.Endpoints = server.Addrs() })...)
	}
	const lossLine = "the store has lost commits"
	await := func(t *testing.T, do func() error) {
		t.Helper()
		require.Eventually(t, func() bool { return do() == nil }, 30*time.Second, 20*time.Millisecond)
	}
	t.Run("is read, written, watched and gives sessions by a handle of the lost one", func(t *testing.T) {
		ns := newNamespace()
		var logged syncBuffer
		c := openOn(t, ns, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
		old := mustCommit(t, c, registry.Create("d/k", []byte("old")))
		for range 20 {
			old = mustCommit(t, c, registry.Set("d/k", old, []byte("old")))
		}
		w, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		s := newSession(t, c)

		replace(t)
		<-s.Lost()
		var next registry.Session
		await(t, func() error {
			next, err = c.OpenSession(t.Context(), registry.SessionOptions{TTL: testTTL})
			return err
		})
		_, err = c.Get(t.Context(), "d/k", registry.ReadOptions{})
		require.ErrorIs(t, err, registry.ErrNotFound)
		first := mustCommit(t, c, registry.Create("d/k", []byte("new")), registry.CreateOwned("~owned", nil, next.ID()))
		require.Less(t, first.Seq, old.Seq)
		_, err = c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At("d/k", old)}})
		require.ErrorIs(t, err, registry.ErrConflict, "a Rev of the lost store")
		for {
			b, err := w.Next(t.Context())
			require.NoError(t, err)
			if b.Kind == registry.Snapshot && len(b.Puts) == 1 && string(b.Puts[0].Value) == "new" {
				break
			}
			if b.Kind == registry.Delta && len(b.Puts) == 1 && string(b.Puts[0].Value) == "new" {
				break
			}
		}
		mustCommit(t, c, registry.Set("d/k", first, []byte("newer")))
		e, err := c.Get(t.Context(), "d/k", registry.ReadOptions{})
		require.NoError(t, err)
		require.Equal(t, "newer", string(e.Value))
		require.Less(t, c.seen.Load(), int64(old.Seq), "plain reads cost one request again")
		require.Equal(t, 1, strings.Count(logged.String(), lossLine))
	})
	t.Run("in which another client has created the namespace does not pass for the lost one", func(t *testing.T) {
		ns := newNamespace()
		c := openOn(t, ns)
		raised := mustCommit(t, c, registry.Create("k", []byte("old")))
		for range 50 {
			raised = mustCommit(t, c, registry.Set("k", raised, []byte("old")))
		}
		replace(t)
		d := openOn(t, ns)
		rev := mustCommit(t, d, registry.Create("k", []byte("new")))
		for range 50 { // the version of the znode is that of the lost one
			rev = mustCommit(t, d, registry.Set("k", rev, []byte("new")))
		}
		await(t, func() error {
			_, err := c.Get(t.Context(), "k", registry.ReadOptions{})
			return err
		})
		_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set("k", raised, nil)}})
		require.ErrorIs(t, err, registry.ErrConflict)
	})
	t.Run("is read by a handle that may only read", func(t *testing.T) {
		ns := newNamespace()
		w := openOn(t, ns)
		rev := mustCommit(t, w, registry.Create("k", []byte("old")))
		for range 20 {
			rev = mustCommit(t, w, registry.Set("k", rev, []byte("old")))
		}
		c := openOn(t, ns, func(o *Options) { o.ReadOnly = true })
		_, err := c.Get(t.Context(), "k", fresh)
		require.NoError(t, err)
		replace(t)
		require.Eventually(t, func() bool {
			_, err := c.Get(context.Background(), "k", registry.ReadOptions{})
			return err != nil && !registry.Retryable(err)
		}, 30*time.Second, 20*time.Millisecond)
		_, err = c.Get(t.Context(), "k", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
	})
}

// A connection that is made after the server session of the link is over names no zxid in its greeting.
func TestRead_AfterALongOutage(t *testing.T) {
	cutForLong := func(f *behindFixture) {
		heal := f.proxy.Refuse()
		require.Eventually(t, func() bool { return !f.c.base.isUp() }, 10*time.Second, time.Millisecond)
		f.c.base.mu.Lock()
		f.c.base.downSince = time.Now().Add(-time.Hour)
		f.c.base.mu.Unlock()
		heal()
	}
	t.Run("does not go back in time on a member that lags, nor forget what it has observed", func(t *testing.T) {
		f := newBehindFixture(t)
		s := newSession(t, open(t, f.c.options.Namespace))
		f.change(t)
		f.requireReads(t, "new", fresh)
		seen := f.c.seen.Load()
		f.setMode(laterConn, lagging)
		cutForLong(f)
		f.requireReads(t, "new", registry.ReadOptions{})
		require.Equal(t, laterConn, f.made())
		require.GreaterOrEqual(t, f.c.seen.Load(), seen)
		require.NoError(t, s.Err())
	})
	t.Run("does not go back in time on a leader that was deposed", func(t *testing.T) {
		f := newBehindFixture(t)
		f.change(t)
		f.requireReads(t, "new", fresh)
		f.setMode(laterConn, deposed)
		cutForLong(f)
		f.requireNoRead(t, registry.ReadOptions{})
		require.False(t, f.c.base.isUp(), "not before it commits")
		f.setMode(laterConn, upToDate)
		f.proxy.Cut()
		f.requireReads(t, "new", registry.ReadOptions{})
	})
}
