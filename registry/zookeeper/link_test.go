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

// broken is a connection on which some writes still work.
type broken struct {
	net.Conn
	works atomic.Int32 // writes that do
}

func (b *broken) Write(p []byte) (int, error) {
	if b.works.Add(-1) < 0 {
		return 0, errors.New("broken pipe")
	}
	return b.Conn.Write(p)
}

// A connection that breaks just when credentials are sent again made the library hang.
func TestLink_OutlivesAWriteThatFails(t *testing.T) {
	const greeting = 1
	for works, what := range map[int32]string{greeting - 1: "the greeting", greeting: "the credentials", greeting + 1: "a request"} {
		t.Run(what, func(t *testing.T) {
			var dials atomic.Int32
			l := newLink(linkConfig{
				hosts:   newHosts(&Options{Endpoints: servertest.ZooKeeper(t).Addrs(), LookupHost: net.DefaultResolver.LookupHost}),
				timeout: testTTL, dialTimeout: time.Second, auth: []credential{{"digest", []byte("user:password")}},
				logger: printf{slog.New(slog.DiscardHandler)}, bound: true,
				dial: func(ctx context.Context, address string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
					if err != nil || dials.Add(1) != 2 {
						return conn, err
					}
					b := &broken{Conn: conn}
					b.works.Store(works)
					return b, nil
				},
			})
			require.NoError(t, l.start())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			defer l.end(ctx, true)
			require.NoError(t, l.await(ctx))
			l.hangUp()
			eventually(t, func() bool {
				_, _ = call(ctx, l, func(c *zk.Conn) (bool, error) { // which fails at times
					there, _, err := c.Exists("/")
					return there, err
				})
				return dials.Load() >= 3
			})
			require.NoError(t, l.await(ctx))
		})
	}
}

// A request that is queued when the library has answered those that it had queued is never sent
// by a link that makes no other connection.
func TestLink_CallEndsWithALinkThatIsOver(t *testing.T) {
	l := newLink(linkConfig{
		hosts:   newHosts(&Options{Endpoints: servertest.ZooKeeper(t).Addrs(), LookupHost: net.DefaultResolver.LookupHost}),
		timeout: testTTL, dialTimeout: time.Second, logger: printf{slog.New(slog.DiscardHandler)}, once: true,
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	})
	require.NoError(t, l.start())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	defer l.end(ctx, false)
	require.NoError(t, l.await(ctx))
	_, err := call(ctx, l, func(c *zk.Conn) (bool, error) {
		l.hangUp()
		for !l.over() {
			<-time.After(time.Millisecond)
		}
		<-time.After(endPause) // the queue has been answered
		there, _, err := c.Exists("/")
		return there, err
	})
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	require.NoError(t, ctx.Err())
}
