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
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// lossyServer keeps events of some keys from a handle's watchers, as servers did that had
// the bug for it.
type lossyServer struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (l *lossyServer) lose(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = map[string]bool{key: true}
}

func (l *lossyServer) options(o *etcd.Options) {
	streamed(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		s, err := streamer(ctx, desc, cc, m, opts...)
		return lossyStream{s, l}, err
	})(o)
}

type lossyStream struct {
	grpc.ClientStream
	server *lossyServer
}

func (s lossyStream) RecvMsg(msg any) error {
	for {
		if err := s.ClientStream.RecvMsg(msg); err != nil {
			return err
		}
		resp, ok := msg.(*pb.WatchResponse)
		if !ok || !s.server.thin(resp) || len(resp.Events) > 0 {
			return nil
		}
	}
}

// thin takes out what is to be lost, and reports whether there was any.
func (l *lossyServer) thin(resp *pb.WatchResponse) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(resp.Events)
	resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool { return l.keys[string(ev.Kv.Key)] })
	return len(resp.Events) < before
}

func TestWatch_FindsEventsThatTheServerLost(t *testing.T) {
	for _, c := range []struct {
		name string
		op   func(rev registry.Rev) registry.Op
		key  string
		want []registry.Key
	}{
		{"of a creation", func(registry.Rev) registry.Op { return registry.Create("d/new", nil) }, "new", []registry.Key{"d/a", "d/b", "d/new"}},
		{"of a set", func(rev registry.Rev) registry.Op { return registry.Set("d/a", rev, []byte("set")) }, "a", []registry.Key{"d/a", "d/b"}},
		{"of a delete", func(rev registry.Rev) registry.Op { return registry.Delete("d/a", rev) }, "a", []registry.Key{"d/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			var server lossyServer
			writer := p.open()
			reader := p.open(server.options, func(o *etcd.Options) { o.AuditEvery = time.Millisecond })
			rev := commit(t, writer, registry.Create("d/a", nil), registry.Create("d/b", nil))
			w := watch(t, reader, "d")
			next(t, w)
			server.lose(p.o.Namespace + "/d//" + c.key)
			lost := commit(t, writer, c.op(rev))
			rev = commit(t, writer, registry.Set("d/b", rev, []byte("told"))) // which hides the loss
			require.Equal(t, "told", string(next(t, w).Puts[0].Value))

			b := next(t, w)
			require.Equal(t, registry.Snapshot, b.Kind)
			require.Equal(t, c.want, keys(b.Puts))
			for _, e := range b.Puts {
				if e.Key == "d/"+registry.Key(c.key) {
					require.Equal(t, lost, e.Modified)
				}
			}
			require.Contains(t, p.log.String(), "an event did not come")
			commit(t, writer, registry.Set("d/b", rev, []byte("goes on")))
			require.Equal(t, "goes on", string(next(t, w).Puts[0].Value))
		})
	}
}

// TestWatch_IsAuditedWithinABudget counts the reads of a handle that does nothing but watch
// many directories.
func TestWatch_IsAuditedWithinABudget(t *testing.T) {
	p := newPlace(t)
	var reads atomic.Int64
	c := p.open(func(o *etcd.Options) { o.AuditEvery = time.Millisecond }, losing("/etcdserverpb.KV/Range", 0, &reads))
	for i := range 30 {
		w := watch(t, c, registry.Key(fmt.Sprintf("d%d", i)))
		next(t, w)
	}
	reads.Store(0)
	start := time.Now()
	require.Eventually(t, func() bool { return reads.Load() >= 5 }, patient, often, "it is audited")
	require.GreaterOrEqual(t, time.Since(start), 4*500*time.Millisecond, "two a second")
}

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
