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
