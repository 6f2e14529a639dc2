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

func TestWatch_AnIdleOneCostsTheServerNothing(t *testing.T) {
	p := newPlace(t)
	var calls atomic.Int64
	c := p.open(intercepted(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		calls.Add(1)
		return invoker(ctx, m, req, reply, cc, opts...)
	}))
	w := watch(t, c, "d")
	next(t, w)
	calls.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := w.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, calls.Load())
}

// TestWatch_TakesAStreamForAll opens watches from contexts that have values of their own,
// by which the client library would tell streams apart.
func TestWatch_TakesAStreamForAll(t *testing.T) {
	p := newPlace(t)
	var streams atomic.Int64
	c := p.open(streamed(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if m == "/etcdserverpb.Watch/Watch" {
			streams.Add(1)
		}
		return streamer(ctx, desc, cc, m, opts...)
	}))
	for i := range 10 {
		ctx := outgoing(t.Context(), "trace", fmt.Sprint(i))
		w, err := c.Watch(ctx, registry.Key(fmt.Sprintf("d%d", i)), registry.WatchOptions{})
		require.NoError(t, err)
		defer w.Close()
		next(t, w)
		commit(t, c, registry.Create(registry.Key(fmt.Sprintf("d%d/k", i)), nil))
		require.Len(t, next(t, w).Puts, 1)
	}
	require.EqualValues(t, 1, streams.Load())
}

// beginnings notes where watches begin, and has something done before and after a list.
type beginnings struct {
	mu            sync.Mutex
	revisions     []int64
	before, after func(*pb.RangeResponse)
}

func (b *beginnings) options(o *etcd.Options) {
	streamed(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, m, opts...)
		return notedStream{s, b}, err
	})(o)
	intercepted(func(ctx context.Context, m string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		r, _ := req.(*pb.RangeRequest)
		isList := r != nil && r.Limit == 0 // a probe of a member has a limit
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

func (b *beginnings) noted() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.revisions)
}

type notedStream struct {
	grpc.ClientStream
	b *beginnings
}

func (s notedStream) SendMsg(msg any) error {
	if r := msg.(*pb.WatchRequest).GetCreateRequest(); r != nil {
		s.b.mu.Lock()
		s.b.revisions = append(s.b.revisions, r.StartRevision)
		s.b.mu.Unlock()
	}
	return s.ClientStream.SendMsg(msg)
}

// etcd serves a watch that begins in the past in its spare time only.
func TestWatch_BeginsWithWhatIsToCome(t *testing.T) {
	t.Run("also when there are commits before and after its list", func(t *testing.T) {
		p := newPlace(t)
		writer := p.open()
		var b beginnings
		b.before = func(*pb.RangeResponse) { commit(t, writer, registry.Create("d/before", nil)) }
		b.after = func(*pb.RangeResponse) { commit(t, writer, registry.Create("d/after", nil)) }
		w := watch(t, p.open(b.options), "d")
		first := next(t, w)
		require.Equal(t, registry.Snapshot, first.Kind)
		require.Contains(t, keys(first.Puts), registry.Key("d/before"))
		if len(first.Puts) == 1 { // else the event came before the first batch was read, and is in it
			require.Equal(t, []registry.Key{"d/after"}, keys(next(t, w).Puts))
		}
		require.Equal(t, []int64{0}, b.noted())
	})
	t.Run("unless the list is of a member that is behind, which misses nothing", func(t *testing.T) {
		p := newPlace(t)
		writer := p.open()
		commit(t, writer, registry.Create("d/first", nil))
		var b beginnings
		var behind int64
		b.after = func(resp *pb.RangeResponse) {
			resp.Header.Revision--
			resp.Kvs = nil
			behind = resp.Header.Revision
		}
		w := watch(t, p.open(b.options), "d")
		first := next(t, w)
		if len(first.Puts) == 0 { // else the event came before the first batch was read, and is in it
			first = next(t, w)
		}
		require.Equal(t, []registry.Key{"d/first"}, keys(first.Puts))
		require.Equal(t, []int64{0, behind + 1}, b.noted())
	})
}
