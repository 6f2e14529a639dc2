package zookeeper

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

// brokenConn is a connection on which writes fail after the first few.
type brokenConn struct {
	net.Conn
	works atomic.Int32 // number of writes left that succeed
}

func (b *brokenConn) Write(p []byte) (int, error) {
	if b.works.Add(-1) < 0 {
		return 0, errors.New("broken pipe")
	}
	return b.Conn.Write(p)
}

// A connection that broke while credentials were sent again made the library hang.
func TestLink_SurvivesAFailedWrite(t *testing.T) {
	const greeting = 1
	for works, what := range map[int32]string{greeting - 1: "the greeting", greeting: "the credentials", greeting + 1: "a request"} {
		t.Run(what, func(t *testing.T) {
			var dials atomic.Int32
			l := newLink(linkConfig{
				members: newMembers(&Options{Endpoints: servertest.ZooKeeper(t).Addrs(), LookupHost: net.DefaultResolver.LookupHost}),
				timeout: testTTL, dialTimeout: time.Second, auth: []credential{{"digest", []byte("user:password")}},
				logger: libraryLogger{slog.New(slog.DiscardHandler)}, oneSession: true,
				dial: func(ctx context.Context, address string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
					if err != nil || dials.Add(1) != 2 {
						return conn, err
					}
					b := &brokenConn{Conn: conn}
					b.works.Store(works)
					return b, nil
				},
			})
			require.NoError(t, l.start())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			defer l.shutDown(ctx, true)
			require.NoError(t, l.awaitUp(ctx))
			l.hangUp()
			eventually(t, func() bool {
				_, _ = callOnce(ctx, l, func(c *zk.Conn) (bool, error) { // may fail
					there, _, err := c.Exists("/")
					return there, err
				})
				return dials.Load() >= 3
			})
			require.NoError(t, l.awaitUp(ctx))
		})
	}
}

// A request that is queued after the library has answered its queue is never sent if the link
// makes no other connection.
func TestLink_CallReturnsWhenTheLinkIsOver(t *testing.T) {
	l := newLink(linkConfig{
		members: newMembers(&Options{Endpoints: servertest.ZooKeeper(t).Addrs(), LookupHost: net.DefaultResolver.LookupHost}),
		timeout: testTTL, dialTimeout: time.Second, logger: libraryLogger{slog.New(slog.DiscardHandler)}, oneConnection: true,
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	})
	require.NoError(t, l.start())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	defer l.shutDown(ctx, false)
	require.NoError(t, l.awaitUp(ctx))
	_, err := callOnce(ctx, l, func(c *zk.Conn) (bool, error) {
		l.hangUp()
		for !l.isOver() {
			<-time.After(time.Millisecond)
		}
		<-time.After(libraryQueueTime) // the library has answered its queue by then
		there, _, err := c.Exists("/")
		return there, err
	})
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	require.NoError(t, ctx.Err())
}
