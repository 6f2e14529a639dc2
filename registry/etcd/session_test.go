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

// withCallInterceptor adds an interceptor of calls.
func withCallInterceptor(i grpc.UnaryClientInterceptor) func(*etcd.Options) {
	return func(o *etcd.Options) { o.DialOptions = append(o.DialOptions, grpc.WithChainUnaryInterceptor(i)) }
}

// withStreamInterceptor adds an interceptor of streams.
func withStreamInterceptor(i grpc.StreamClientInterceptor) func(*etcd.Options) {
	return func(o *etcd.Options) { o.DialOptions = append(o.DialOptions, grpc.WithChainStreamInterceptor(i)) }
}

// droppingReplies drops the replies to the first n calls of a method and counts its calls.
func droppingReplies(method string, n int64, calls *atomic.Int64) func(*etcd.Options) {
	return withCallInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoker(ctx, m, req, reply, cc, opts...)
		if m == method && calls.Add(1) <= n {
			return status.Error(codes.Unavailable, "the reply was lost")
		}
		return err
	})
}

func (p *fixture) leases() map[clientv3.LeaseID]bool {
	p.t.Helper()
	resp, err := p.raw.Leases(p.t.Context())
	require.NoError(p.t, err)
	all := map[clientv3.LeaseID]bool{}
	for _, l := range resp.Leases {
		all[l.ID] = true
	}
	return all
}

func leaseOf(t *testing.T, p *fixture, s registry.Session) clientv3.LeaseID {
	t.Helper()
	node := p.get("/:sessions/" + string(s.ID()))
	require.Len(t, node.Kvs, 1)
	return clientv3.LeaseID(node.Kvs[0].Lease)
}

func TestSession_SetKeepsTheLease(t *testing.T) {
	p := newFixture(t)
	a, b := p.open(), p.open()
	s := openSession(t, a)
	lease := leaseOf(t, p, s)
	rev := mustCommit(t, a, registry.CreateOwned("~k", nil, s.ID()))
	for _, r := range []registry.Registry{b, a} {
		rev = mustCommit(t, r, registry.Set("~k", rev, []byte("again")))
		require.EqualValues(t, lease, p.get("//~k").Kvs[0].Lease)
	}
	_, err := p.raw.Revoke(t.Context(), lease)
	require.NoError(t, err)
	require.Empty(t, p.get("//~k").Kvs)
}

func TestSession_LostReplyToAGrantLeavesAnEmptyLeaseThatExpires(t *testing.T) {
	p := newFixture(t)
	var grants atomic.Int64
	c := p.open(droppingReplies("/etcdserverpb.Lease/LeaseGrant", 1, &grants))
	before := p.leases()
	s := openSession(t, c)
	require.EqualValues(t, 2, grants.Load())
	lease := leaseOf(t, p, s)
	var orphans []clientv3.LeaseID
	for id := range p.leases() {
		if !before[id] && id != lease {
			orphans = append(orphans, id)
		}
	}
	require.Len(t, orphans, 1, "each attempt requests another lease, so a late one cannot revive a session")
	left, err := p.raw.TimeToLive(t.Context(), orphans[0], clientv3.WithAttachedKeys())
	require.NoError(t, err)
	require.Empty(t, left.Keys)
	require.Eventually(t, func() bool { return !p.leases()[orphans[0]] }, ttl+longWait, pollInterval)
	st, _ := s.State()
	require.Equal(t, registry.SessionConnected, st)
}

func TestSession_LostReplyToItsKeyIsRetried(t *testing.T) {
	p := newFixture(t)
	var txns atomic.Int64
	txns.Store(1) // keeps the reply to the check of rights in Open
	c := p.open(droppingReplies("/etcdserverpb.KV/Txn", 1, &txns))
	txns.Store(0)
	s := openSession(t, c)
	require.EqualValues(t, 2, txns.Load())
	_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
	require.NoError(t, err)
}

func TestSession_FailsToOpenIfThatTakesLongerThanItsTTL(t *testing.T) {
	p := newFixture(t)
	c := p.open(func(o *etcd.Options) { o.CallTimeout = time.Minute }, withCallInterceptor(
		func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoker(ctx, m, req, reply, cc, opts...)
			if m == "/etcdserverpb.Lease/LeaseGrant" {
				<-time.After(ttl * 95 / 100) // later than the safe deadline, earlier than the end of the lease
			}
			return err
		}))
	_, err := c.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
	require.ErrorIs(t, err, registry.ErrUnavailable)
	require.NotErrorIs(t, err, registry.ErrSessionLost)
}

func TestSession_TTLIsRoundedUpToSeconds(t *testing.T) {
	p := newFixture(t)
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

func TestSession_MalformedIDsAreDead(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	s := openSession(t, c)
	for _, id := range []registry.SessionID{"x", "00", "../k", "0000000000000000", "-000000000000001", s.ID() + "0", "0x" + s.ID()} {
		_, err := c.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.Dead(id)}})
		require.NoError(t, err, "%q", id)
		_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, id)}})
		require.ErrorIs(t, err, registry.ErrSessionLost, "%q", id)
	}
}

// TestSession_LeaseIsRevokedWhenItIsLost checks what an operator sees: the lease of a lost
// session does not remain until its TTL ends.
func TestSession_LeaseIsRevokedWhenItIsLost(t *testing.T) {
	p := newFixture(t)
	var deaf atomic.Bool
	c := p.open(withStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, m, opts...)
		if m == "/etcdserverpb.Lease/LeaseKeepAlive" {
			return deafStream{s, &deaf}, err
		}
		return s, err
	}))
	s := openSession(t, c)
	lease := leaseOf(t, p, s)
	deaf.Store(true) // renewals arrive, answers do not
	lost := time.Now()
	<-s.Lost()
	require.Less(t, time.Since(lost), ttl)
	require.ErrorIs(t, s.Err(), registry.ErrSessionLost)
	require.Eventually(t, func() bool { return !p.leases()[lease] }, ttl/4, pollInterval, "before the TTL ends")
	require.Contains(t, p.log.String(), "session is lost")
}

// deafStream drops the messages that it receives while deaf is set.
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

// TestSession_RenewalsShareAStream counts streams, because with a password each one costs a
// password check.
func TestSession_RenewalsShareAStream(t *testing.T) {
	p := newFixture(t)
	var streams, asked atomic.Int64
	c := p.open(withStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
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
		openSession(t, c)
	}
	require.Eventually(t, func() bool { return asked.Load() >= 15 }, 3*ttl+longWait, pollInterval)
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
