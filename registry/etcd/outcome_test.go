package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// openAnswering opens a handle that passes its first transaction to answer, which sends it, or
// another one, and returns the error that the handle gets. sent counts all transactions.
func (p *fixture) openAnswering(answer func(r *pb.TxnRequest, send func(*pb.TxnRequest) error) error) (c *etcd.Client, sent *atomic.Int64) {
	p.t.Helper()
	var opened atomic.Bool
	sent = new(atomic.Int64)
	c = p.open(withCallInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if m != "/etcdserverpb.KV/Txn" || !opened.Load() || sent.Add(1) > 1 {
			return invoker(ctx, m, req, reply, cc, opts...)
		}
		return answer(req.(*pb.TxnRequest), func(r *pb.TxnRequest) error { return invoker(ctx, m, r, reply, cc, opts...) })
	}))
	opened.Store(true)
	return c, sent
}

func TestTxn_OutcomeIsUnknown(t *testing.T) {
	for name, err := range map[string]error{
		"when the member waited in vain for it":           rpctypes.ErrGRPCTimeout,
		"when the leader failed":                          rpctypes.ErrGRPCTimeoutDueToLeaderFail,
		"when the leader changed":                         rpctypes.ErrGRPCLeaderChanged,
		"when the members lost each other":                rpctypes.ErrGRPCTimeoutDueToConnectionLost,
		"when the server's time limit ended, not the own": status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		"when the server canceled the call":               status.Error(codes.Canceled, "context canceled"),
	} {
		t.Run(name+", and it is sent once", func(t *testing.T) {
			p := newFixture(t)
			c, sent := p.openAnswering(func(r *pb.TxnRequest, send func(*pb.TxnRequest) error) error {
				require.NoError(t, send(r))
				return err
			})
			_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.NotErrorIs(t, err, registry.ErrNotApplied)
			require.EqualValues(t, 1, sent.Load())
			require.Len(t, p.get("//k").Kvs, 1)
		})
	}
}

func TestTxn_IsSentAgainIfItDidNotLeaveTheProcess(t *testing.T) {
	p := newFixture(t)
	c, sent := p.openAnswering(func(*pb.TxnRequest, func(*pb.TxnRequest) error) error {
		return status.Error(codes.Unavailable, "the connection broke before the request")
	})
	mustCommit(t, c, registry.Create("k", nil))
	require.EqualValues(t, 2, sent.Load())
}

// TestTxn_AtTheQuota answers that there is no space. A server does so before it proposes a
// transaction, and also after it has applied one.
func TestTxn_AtTheQuota(t *testing.T) {
	set := func(t *testing.T, applied bool, since func(*fixture)) (p *fixture, after registry.Rev, err error) {
		p = newFixture(t)
		rev := mustCommit(t, p.open(), registry.Create("k", []byte("before")))
		c, _ := p.openAnswering(func(r *pb.TxnRequest, send func(*pb.TxnRequest) error) error {
			if !applied {
				r = &pb.TxnRequest{}
			}
			require.NoError(t, send(r))
			since(p)
			return rpctypes.ErrGRPCNoSpace
		})
		after, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Set("k", rev, []byte("after"))}})
		return p, after, err
	}
	nothing := func(*fixture) {}
	t.Run("is refused if it was not applied", func(t *testing.T) {
		p, _, err := set(t, false, nothing)
		require.ErrorIs(t, err, registry.ErrQuota)
		require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		require.EqualValues(t, 1, p.get("//k").Kvs[0].Version)
	})
	t.Run("succeeds if it was applied", func(t *testing.T) {
		p, after, err := set(t, true, nothing)
		require.NoError(t, err)
		require.EqualValues(t, p.get("//k").Kvs[0].ModRevision, after.Seq)
	})
	t.Run("has an unknown outcome if another client has written the key since", func(t *testing.T) {
		_, _, err := set(t, true, func(p *fixture) {
			other := p.open()
			e, err := other.Get(t.Context(), "k", fresh)
			require.NoError(t, err)
			mustCommit(t, other, registry.Set("k", e.Modified, []byte("by another client")))
		})
		require.ErrorIs(t, err, registry.ErrQuota)
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
	})
}
