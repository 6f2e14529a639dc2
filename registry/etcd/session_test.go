package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// intercepted adds an interceptor of calls.
func intercepted(i grpc.UnaryClientInterceptor) func(*etcd.Options) {
	return func(o *etcd.Options) { o.DialOptions = append(o.DialOptions, grpc.WithChainUnaryInterceptor(i)) }
}

// streamed adds an interceptor of streams.
func streamed(i grpc.StreamClientInterceptor) func(*etcd.Options) {
	return func(o *etcd.Options) { o.DialOptions = append(o.DialOptions, grpc.WithChainStreamInterceptor(i)) }
}

// losing loses the replies to the first n calls of a method, which calls counts.
func losing(method string, n int64, calls *atomic.Int64) func(*etcd.Options) {
	return intercepted(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoker(ctx, m, req, reply, cc, opts...)
		if m == method && calls.Add(1) <= n {
			return status.Error(codes.Unavailable, "the reply was lost")
		}
		return err
	})
}

func (p *place) leases() map[clientv3.LeaseID]bool {
	p.t.Helper()
	resp, err := p.raw.Leases(p.t.Context())
	require.NoError(p.t, err)
	all := map[clientv3.LeaseID]bool{}
	for _, l := range resp.Leases {
		all[l.ID] = true
	}
	return all
}

func leaseOf(t *testing.T, p *place, s registry.Session) clientv3.LeaseID {
	t.Helper()
	node := p.get("/:sessions/" + string(s.ID()))
	require.Len(t, node.Kvs, 1)
	return clientv3.LeaseID(node.Kvs[0].Lease)
}

func TestSession_SetKeepsTheLease(t *testing.T) {
	p := newPlace(t)
	a, b := p.open(), p.open()
	s := session(t, a)
	lease := leaseOf(t, p, s)
	rev := commit(t, a, registry.CreateOwned("~k", nil, s.ID()))
	for _, r := range []registry.Registry{b, a} {
		rev = commit(t, r, registry.Set("~k", rev, []byte("again")))
		require.EqualValues(t, lease, p.get("//~k").Kvs[0].Lease)
	}
	_, err := p.raw.Revoke(t.Context(), lease)
	require.NoError(t, err)
	require.Empty(t, p.get("//~k").Kvs)
}

func TestSession_ALostReplyToAGrantLeavesALeaseWithoutKeysThatExpires(t *testing.T) {
	p := newPlace(t)
	var grants atomic.Int64
	c := p.open(losing("/etcdserverpb.Lease/LeaseGrant", 1, &grants))
	before := p.leases()
	s := session(t, c)
	require.EqualValues(t, 2, grants.Load())
	lease := leaseOf(t, p, s)
	var orphans []clientv3.LeaseID
	for id := range p.leases() {
		if !before[id] && id != lease {
			orphans = append(orphans, id)
		}
	}
	require.Len(t, orphans, 1, "each attempt is about a lease of its own: a late one cannot revive a session")
	left, err := p.raw.TimeToLive(t.Context(), orphans[0], clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Empty(t, left.Keys)
	require.Eventually(t, func() bool { return !p.leases()[orphans[0]] }, ttl+patient, often)
	st, _ := s.State()
	require.Equal(t, registry.SessionConnected, st)
}

func TestSession_ALostReplyToItsKeyIsAskedAgain(t *testing.T) {
	p := newPlace(t)
	var txns atomic.Int64
	txns.Store(1) // the check of rights that opens a handle keeps its reply
	c := p.open(losing("/etcdserverpb.KV/Txn", 1, &txns))
	txns.Store(0)
	s := session(t, c)
	require.EqualValues(t, 2, txns.Load())
	_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
	require.NoError(t, err)
}

func TestSession_ThatTookLongerToOpenThanItsTTLIsNotOpened(t *testing.T) {
	p := newPlace(t)
	c := p.open(func(o *etcd.Options) { o.CallTimeout = time.Minute }, intercepted(
		func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoker(ctx, m, req, reply, cc, opts...)
			if m == "/etcdserverpb.Lease/LeaseGrant" {
				<-time.After(ttl * 95 / 100) // past safe-until, but before the lease ends
			}
			return err
		}))
	_, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
	require.ErrorIs(t, err, registry.ErrUnavailable)
	require.NotErrorIs(t, err, registry.ErrSessionLost)
}

func TestSession_TTLIsRoundedUpToSeconds(t *testing.T) {
	p := newPlace(t)
	c := p.open()
	for ask, want := range map[time.Duration]time.Duration{
		time.Nanosecond:         time.Second,
		2 * time.Second:         2 * time.Second,
		2001 * time.Millisecond: 3 * time.Second,
		0:                       registry.DefaultSessionTTL,
	} {
		s, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: ask})
		require.NoError(t, err)
		require.Equal(t, want, s.TTL(), "asked for %v", ask)
		require.NoError(t, s.Close(t.Context()))
	}
}

func TestSession_IDsOfOthersAreDead(t *testing.T) {
	p := newPlace(t)
	c := p.open()
	s := session(t, c)
	for _, id := range []registry.SessionID{"x", "00", "../k", "0000000000000000", "-000000000000001", s.ID() + "0", "0x" + s.ID()} {
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead(id)}})
		require.NoError(t, err, "%q", id)
		_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, id)}})
		require.ErrorIs(t, err, registry.ErrSessionLost, "%q", id)
	}
}

// TestSession_IsEndedAtTheStoreWhenItIsLost looks for what an operator would see: a lease
// that its owner has given up does not go on until somebody prolongs it by mistake.
func TestSession_IsEndedAtTheStoreWhenItIsLost(t *testing.T) {
	p := newPlace(t)
	var deaf atomic.Bool
	c := p.open(streamed(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, m, opts...)
		if m == "/etcdserverpb.Lease/LeaseKeepAlive" {
			return deafStream{s, &deaf}, err
		}
		return s, err
	}))
	s := session(t, c)
	lease := leaseOf(t, p, s)
	deaf.Store(true) // renewals arrive, and answers do not
	lost := time.Now()
	<-s.Lost()
	require.Less(t, time.Since(lost), ttl)
	require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
	require.Eventually(t, func() bool { return !p.leases()[lease] }, ttl/4, often, "before its TTL has run out")
	require.Contains(t, p.log.String(), "session is lost")
}

// deafStream loses what it receives while it is deaf.
type deafStream struct {
	grpc.ClientStream
	deaf *atomic.Bool
}

func (s deafStream) RecvMsg(msg any) error {
	for {
		if err := s.ClientStream.RecvMsg(msg); err != nil || !s.deaf.Load() {
			return err
		}
	}
}

// TestSession_RenewalsShareAStream counts streams: with a password each costs a check of it.
func TestSession_RenewalsShareAStream(t *testing.T) {
	p := newPlace(t)
	var streams, asked atomic.Int64
	c := p.open(streamed(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, m, opts...)
		if m == "/etcdserverpb.Lease/LeaseKeepAlive" {
			streams.Add(1)
			return countedStream{s, &asked}, err
		}
		return s, err
	}))
	for range 5 {
		session(t, c)
	}
	require.Eventually(t, func() bool { return asked.Load() >= 15 }, 3*ttl+patient, often)
	require.EqualValues(t, 1, streams.Load())
}

type countedStream struct {
	grpc.ClientStream
	sent *atomic.Int64
}

func (s countedStream) SendMsg(msg any) error {
	if _, ok := msg.(*pb.LeaseKeepAliveRequest); ok {
		s.sent.Add(1)
	}
	return s.ClientStream.SendMsg(msg)
}
