package zookeeper

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
)

// eventDroppingProxy returns the address of a proxy that drops all watch events while mute is
// set, and counts the reads of an audit.
func eventDroppingProxy(t *testing.T) (addr string, mute *atomic.Bool, reads *atomic.Int64) {
	t.Helper()
	p, err := tcpproxy.Listen(servertest.ZooKeeper(t).Addrs()[0])
	require.NoError(t, err)
	t.Cleanup(p.Close)
	mute, reads = new(atomic.Bool), new(atomic.Int64)
	p.SetFilter(func() tcpproxy.Filter {
		var rest [2][]byte
		greeted := [2]bool{}
		return func(_ context.Context, d tcpproxy.Direction, b []byte) ([]byte, error) {
			rest[d] = append(rest[d], b...)
			var passed []byte
			for len(rest[d]) >= 4 {
				n := 4 + int(binary.BigEndian.Uint32(rest[d]))
				if len(rest[d]) < n {
					break
				}
				frame := rest[d][:n]
				rest[d] = rest[d][n:]
				const exists, getChildren = 3, 12
				reply, isReply := zkwire.ParseReply(frame[4:])
				request, isRequest := zkwire.ParseRequest(frame[4:])
				switch {
				case !greeted[d]:
					greeted[d] = true
				case d == tcpproxy.ToClient && isReply && reply.Xid == -1 && mute.Load():
					continue
				case d == tcpproxy.ToServer && isRequest && (request.Op == exists || request.Op == getChildren):
					reads.Add(1)
				}
				passed = append(passed, frame...)
			}
			return passed, nil
		}
	})
	return p.Addr(), mute, reads
}

func TestAudit(t *testing.T) {
	follow := func(t *testing.T, every time.Duration) (c *Client, w registry.Watcher, mute *atomic.Bool, reads *atomic.Int64) {
		addr, mute, reads := eventDroppingProxy(t)
		c = open(t, newNamespace(), func(o *Options) { o.Endpoints, o.AuditEvery = []string{addr}, every })
		mustCommit(t, c, registry.Create("d/set", nil), registry.Create("d/deleted", nil))
		w, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
		require.NoError(t, err)
		_, err = w.Next(t.Context())
		require.NoError(t, err)
		return c, w, mute, reads
	}
	t.Run("finds changes whose events were lost", func(t *testing.T) {
		c, w, mute, _ := follow(t, 100*time.Millisecond)
		mute.Store(true)
		for key, op := range map[registry.Key]func(registry.Rev) registry.Op{
			"d/set":     func(rev registry.Rev) registry.Op { return registry.Set("d/set", rev, []byte("missed")) },
			"d/deleted": func(rev registry.Rev) registry.Op { return registry.Delete("d/deleted", rev) },
		} {
			e, err := c.Get(t.Context(), key, fresh)
			require.NoError(t, err)
			mustCommit(t, c, op(e.Modified))
		}
		mustCommit(t, c, registry.Create("d/created", nil))
		mute.Store(false)
		puts, deletes := map[registry.Key]string{}, map[registry.Key]bool{}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for len(puts) < 2 || len(deletes) < 1 {
			b, err := w.Next(ctx)
			require.NoError(t, err, "so far puts %v, deletes %v", puts, deletes)
			require.Equal(t, registry.Delta, b.Kind)
			for _, e := range b.Puts {
				puts[e.Key] = string(e.Value)
			}
			for _, key := range b.Deletes {
				deletes[key] = true
			}
		}
		require.Equal(t, map[registry.Key]string{"d/set": "missed", "d/created": ""}, puts)
		require.Equal(t, map[registry.Key]bool{"d/deleted": true}, deletes)
	})
	t.Run("makes two reads a second at most", func(t *testing.T) {
		c, _, _, reads := follow(t, time.Millisecond)
		for i := range 20 {
			_, err := c.Watch(t.Context(), registry.Join("d", string(rune('a'+i))), registry.WatchOptions{})
			require.NoError(t, err)
		}
		settled := int64(-1)
		require.Eventually(t, func() bool { // the initial reads of the watches
			n := reads.Load()
			defer func() { settled = n }()
			return n == settled
		}, 10*time.Second, 400*time.Millisecond)
		before, start := reads.Load(), time.Now()
		<-time.After(2 * time.Second)
		most := int64(time.Since(start)/auditGap) + 1
		require.LessOrEqual(t, reads.Load()-before, most)
		require.Positive(t, reads.Load()-before)
	})
}
