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

// lossyServer drops the events of some keys on their way to a handle's watchers, as servers
// with the bug did.
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
	withStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, m string,
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
		if !ok || !s.server.dropEvents(resp) || len(resp.Events) > 0 {
			return nil
		}
	}
}

// dropEvents removes the events to be lost and reports whether there were any.
func (l *lossyServer) dropEvents(resp *pb.WatchResponse) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(resp.Events)
	resp.Events = slices.DeleteFunc(resp.Events, func(ev *mvccpb.Event) bool { return l.keys[string(ev.Kv.Key)] })
	return len(resp.Events) < before
}

func TestAudit_FindsEventsThatTheServerLost(t *testing.T) {
	for _, c := range []struct {
		name string
		op   func(rev registry.Rev) registry.Op
		key  string
		want []registry.Key
	}{
		{"create", func(registry.Rev) registry.Op { return registry.Create("d/new", nil) }, "new", []registry.Key{"d/a", "d/b", "d/new"}},
		{"set", func(rev registry.Rev) registry.Op { return registry.Set("d/a", rev, []byte("set")) }, "a", []registry.Key{"d/a", "d/b"}},
		{"delete", func(rev registry.Rev) registry.Op { return registry.Delete("d/a", rev) }, "a", []registry.Key{"d/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newFixture(t)
			var server lossyServer
			writer := p.open()
			reader := p.open(server.options, func(o *etcd.Options) { o.AuditEvery = time.Millisecond })
			rev := mustCommit(t, writer, registry.Create("d/a", nil), registry.Create("d/b", nil))
			w := openWatch(t, reader, "d")
			nextBatch(t, w)
			server.lose(p.o.Namespace + "/d//" + c.key)
			lost := mustCommit(t, writer, c.op(rev))
			rev = mustCommit(t, writer, registry.Set("d/b", rev, []byte("received"))) // a later event hides the loss
			require.Equal(t, "received", string(nextBatch(t, w).Puts[0].Value))

			b := nextBatch(t, w)
			require.Equal(t, registry.Snapshot, b.Kind)
			require.Equal(t, c.want, keys(b.Puts))
			for _, e := range b.Puts {
				if e.Key == "d/"+registry.Key(c.key) {
					require.Equal(t, lost, e.Modified)
				}
			}
			require.Contains(t, p.log.String(), "the server did not send an event")
			mustCommit(t, writer, registry.Set("d/b", rev, []byte("goes on")))
			require.Equal(t, "goes on", string(nextBatch(t, w).Puts[0].Value))
		})
	}
}

// TestAudit_StaysWithinItsBudget counts the reads of a handle that only watches many
// directories.
func TestAudit_StaysWithinItsBudget(t *testing.T) {
	p := newFixture(t)
	var reads atomic.Int64
	c := p.open(func(o *etcd.Options) { o.AuditEvery = time.Millisecond }, droppingReplies("/etcdserverpb.KV/Range", 0, &reads))
	for i := range 30 {
		w := openWatch(t, c, registry.Key(fmt.Sprintf("d%d", i)))
		nextBatch(t, w)
	}
	reads.Store(0)
	start := time.Now()
	require.Eventually(t, func() bool { return reads.Load() >= 5 }, longWait, pollInterval, "the audit runs")
	require.GreaterOrEqual(t, time.Since(start), 4*500*time.Millisecond, "at most two reads a second")
}
