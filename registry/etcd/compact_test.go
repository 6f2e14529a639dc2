package etcd_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

func withMetadata(ctx context.Context, key, value string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, key, value)
}

func TestCompact_HandlesTakeTurns(t *testing.T) {
	const every = 300 * time.Millisecond
	p := newFixtureOn(t, servertest.StartEtcd(t, testserver.EtcdOptions{}))
	writer := p.open()
	first := mustCommit(t, writer, registry.Create("k", nil))
	rev := mustCommit(t, writer, registry.Set("k", first, []byte("now")))
	w := openWatch(t, writer, "")
	nextBatch(t, w)
	var compactions atomic.Int64
	start := time.Now()
	for range 4 {
		p.open(func(o *etcd.Options) { o.CompactEvery = every }, droppingReplies("/etcdserverpb.KV/Compact", 0, &compactions))
	}
	require.Eventually(t, func() bool {
		_, err := p.raw.Get(t.Context(), p.o.Namespace+"//k", clientv3.WithRev(int64(first.Seq)))
		return errors.Is(err, rpctypes.ErrCompacted)
	}, longWait, pollInterval, "the history is removed")
	require.Eventually(t, func() bool { return compactions.Load() >= 3 }, longWait, pollInterval)
	turns := float64(time.Since(start))/float64(every*4/5) + 1
	require.LessOrEqual(t, float64(compactions.Load()), turns, "the handles take turns")

	e, err := writer.Get(t.Context(), "k", fresh)
	require.NoError(t, err)
	require.Equal(t, rev, e.Modified, "the latest value remains")
	mustCommit(t, writer, registry.Set("k", rev, []byte("goes on")))
	require.Equal(t, "goes on", string(nextBatch(t, w).Puts[0].Value))
}

// TestCompact_KeepsTheHistoryOfATurn compares compactions with the revision of the turn in which
// they were made.
func TestCompact_KeepsTheHistoryOfATurn(t *testing.T) {
	p := newFixtureOn(t, servertest.StartEtcd(t, testserver.EtcdOptions{}))
	type compaction struct{ at, turn int64 }
	made := make(chan compaction, 100)
	p.open(func(o *etcd.Options) { o.CompactEvery = 100 * time.Millisecond }, withCallInterceptor(func(ctx context.Context, m string,
		req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if r, ok := req.(*pb.CompactionRequest); ok {
			made <- compaction{r.Revision, p.get("/:compaction").Kvs[0].ModRevision}
		}
		return invoker(ctx, m, req, reply, cc, opts...)
	}))
	before := <-made
	require.Less(t, before.at, before.turn)
	for range 2 {
		next := <-made
		require.Equal(t, before.turn, next.at, "the turn before is the first that remains")
		require.Less(t, next.at, next.turn)
		before = next
	}
}

func TestCompact_IsOffByDefault(t *testing.T) {
	p := newFixture(t)
	c := p.open()
	openSession(t, c)
	require.Empty(t, p.get("/:compaction").Kvs)
}
