package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// newFixtureBehindProxies returns a fixture whose handles reach the server through n proxies,
// in that order, as if each proxy led to another member.
func newFixtureBehindProxies(t *testing.T, n int) (*fixture, []*tcpproxy.Proxy) {
	p := newFixture(t)
	var proxies []*tcpproxy.Proxy
	p.o.Endpoints, p.o.InOrder = nil, true
	for range n {
		proxy, err := tcpproxy.Listen(servertest.Etcd(t).Addrs()[0])
		require.NoError(t, err)
		t.Cleanup(proxy.Close)
		proxies = append(proxies, proxy)
		p.o.Endpoints = append(p.o.Endpoints, proxy.Addr())
	}
	return p, proxies
}

func TestLink_UsesOneMemberAndSwitchesToTheNext(t *testing.T) {
	p, proxies := newFixtureBehindProxies(t, 3)
	c := p.open()
	s := openSession(t, c)
	w := openWatch(t, c, "d")
	nextBatch(t, w)
	for i := range 4 {
		require.Eventually(t, func() bool {
			return proxies[i%3].Connections() == 1 && proxies[(i+1)%3].Connections()+proxies[(i+2)%3].Connections() == 0
		}, longWait, pollInterval, "one member is in use, the next one after each cut")
		mustCommit(t, c, registry.Create(registry.Join("d", string(rune('a'+i))), nil))
		require.Len(t, nextBatch(t, w).Puts, 1, "the watch resumes")
		proxies[i%3].Cut()
		require.Eventually(t, func() bool {
			st, _ := s.State()
			return st == registry.SessionConnected && proxies[(i+1)%3].Connections() == 1
		}, longWait, pollInterval)
	}
	select {
	case <-s.Lost():
		t.Error(s.Err())
	default:
	}
}

func TestLink_SuspendsSessionsWhenItBreaks(t *testing.T) {
	p, proxies := newFixtureBehindProxies(t, 1)
	c := p.open()
	s, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 12 * longWait})
	require.NoError(t, err)
	defer proxies[0].Refuse()()
	require.Eventually(t, func() bool {
		st, _ := s.State()
		return st == registry.SessionSuspended
	}, longWait, pollInterval, "long before a renewal is late")
}

func TestLink_SwitchesFromASilentMember(t *testing.T) {
	t.Run("before the session is lost", func(t *testing.T) {
		t.Parallel()
		p, proxies := newFixtureBehindProxies(t, 2)
		c := p.open()
		s, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 5 * time.Second})
		require.NoError(t, err)
		w := openWatch(t, c, "d")
		nextBatch(t, w)
		defer proxies[0].Blackhole()()
		mustCommit(t, p.open(func(o *etcd.Options) { o.Endpoints = o.Endpoints[1:] }), registry.Create("d/k", nil))
		require.Len(t, nextBatch(t, w).Puts, 1, "the watch resumes on the other member")
		require.Eventually(t, func() bool {
			st, _ := s.State()
			return st == registry.SessionConnected
		}, longWait, pollInterval)
		_, err = c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
		require.NoError(t, err)
		require.Contains(t, p.log.String(), "the member does not answer")
	})
	t.Run("within the duration of one read", func(t *testing.T) {
		t.Parallel()
		p, proxies := newFixtureBehindProxies(t, 2)
		c := p.open()
		defer proxies[0].Blackhole()()
		_, err := c.Get(t.Context(), "none", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
	})
	t.Run("keeps the member when all are slow", func(t *testing.T) {
		t.Parallel()
		p, proxies := newFixtureBehindProxies(t, 2)
		c := p.open()
		s, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: 5 * time.Second})
		require.NoError(t, err)
		for _, proxy := range proxies {
			defer proxy.Delay(tcpproxy.ToClient, 2*time.Second)()
		}
		_, err = c.Get(t.Context(), "none", fresh)
		require.ErrorIs(t, err, registry.ErrNotFound)
		select {
		case <-s.Lost():
			t.Error(s.Err())
		case <-time.After(s.TTL()):
		}
		require.NotContains(t, p.log.String(), "disconnected from member; reconnecting")
	})
}

func TestLink_ReportsAnUnsentTxnAsNotApplied(t *testing.T) {
	p, proxies := newFixtureBehindProxies(t, 1)
	c := p.open()
	defer proxies[0].Refuse()()
	require.Eventually(t, func() bool { // until the connection has broken
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		return errors.Is(err, registry.ErrNotApplied) && errors.Is(err, context.DeadlineExceeded)
	}, longWait, pollInterval)
	require.Empty(t, p.get("//k").Kvs)
}
