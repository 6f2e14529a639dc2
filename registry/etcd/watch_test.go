package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

func TestWatch_MakesNoCallsWhileIdle(t *testing.T) {
	p := newFixture(t)
	var calls atomic.Int64
	c := p.open(withCallInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		calls.Add(1)
		return invoker(ctx, m, req, reply, cc, opts...)
	}))
	w := openWatch(t, c, "d")
	nextBatch(t, w)
	calls.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := w.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, calls.Load())
}

// TestWatch_SharesOneStream opens watches with contexts that carry different values, for which
// the client library would use separate streams.
func TestWatch_SharesOneStream(t *testing.T) {
	p := newFixture(t)
	var streams atomic.Int64
	c := p.open(withStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if m == "/etcdserverpb.Watch/Watch" {
			streams.Add(1)
		}
		return streamer(ctx, desc, cc, m, opts...)
	}))
	for i := range 10 {
		ctx := withMetadata(t.Context(), "trace", fmt.Sprint(i))
		w, err := c.Watch(ctx, registry.Key(fmt.Sprintf("d%d", i)), registry.WatchOptions{})
		require.NoError(t, err)
		defer w.Close()
		nextBatch(t, w)
		mustCommit(t, c, registry.Create(registry.Key(fmt.Sprintf("d%d/k", i)), nil))
		require.Len(t, nextBatch(t, w).Puts, 1)
	}
	require.EqualValues(t, 1, streams.Load())
}

// watchStarts records the start revisions of watches and calls hooks before and after a list.
type watchStarts struct {
	mu            sync.Mutex
	revisions     []int64
	before, after func(*pb.RangeResponse)
}

func (b *watchStarts) options(o *etcd.Options) {
	withStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, m, opts...)
		return recordedStream{s, b}, err
	})(o)
	withCallInterceptor(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		r, _ := req.(*pb.RangeRequest)
		isList := r != nil && r.Limit == 0 // checkRead sets a limit
		resp, _ := reply.(*pb.RangeResponse)
		if isList && b.before != nil {
			b.before(resp)
		}
		err := invoker(ctx, m, req, reply, cc, opts...)
		if isList && b.after != nil {
			b.after(resp)
		}
		return err
	})(o)
}

func (b *watchStarts) recorded() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.revisions)
}

type recordedStream struct {
	grpc.ClientStream
	b *watchStarts
}

func (s recordedStream) SendMsg(msg any) error {
	if r := msg.(*pb.WatchRequest).GetCreateRequest(); r != nil {
		s.b.mu.Lock()
		s.b.revisions = append(s.b.revisions, r.StartRevision)
		s.b.mu.Unlock()
	}
	return s.ClientStream.SendMsg(msg)
}

// etcd serves a watch that begins in the past from a slow background loop.
func TestWatch_BeginsInThePresent(t *testing.T) {
	t.Run("with commits before and after its list", func(t *testing.T) {
		p := newFixture(t)
		writer := p.open()
		var b watchStarts
		b.before = func(*pb.RangeResponse) { mustCommit(t, writer, registry.Create("d/before", nil)) }
		b.after = func(*pb.RangeResponse) { mustCommit(t, writer, registry.Create("d/after", nil)) }
		w := openWatch(t, p.open(b.options), "d")
		first := nextBatch(t, w)
		require.Equal(t, registry.Snapshot, first.Kind)
		require.Contains(t, keys(first.Puts), registry.Key("d/before"))
		if len(first.Puts) == 1 { // otherwise the event arrived early and is merged into the first batch
			require.Equal(t, []registry.Key{"d/after"}, keys(nextBatch(t, w).Puts))
		}
		require.Equal(t, []int64{0}, b.recorded())
	})
	t.Run("except after a list from a member that lags, where it loses nothing", func(t *testing.T) {
		p := newFixture(t)
		writer := p.open()
		mustCommit(t, writer, registry.Create("d/first", nil))
		var b watchStarts
		var behind int64
		b.after = func(resp *pb.RangeResponse) {
			resp.Header.Revision--
			resp.Kvs = nil
			behind = resp.Header.Revision
		}
		w := openWatch(t, p.open(b.options), "d")
		first := nextBatch(t, w)
		if len(first.Puts) == 0 { // otherwise the event arrived early and is merged into the first batch
			first = nextBatch(t, w)
		}
		require.Equal(t, []registry.Key{"d/first"}, keys(first.Puts))
		require.Equal(t, []int64{0, behind + 1}, b.recorded())
	})
}
