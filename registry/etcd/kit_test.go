package etcd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

const (
	ttl          = 2 * time.Second
	longWait     = 10 * time.Second // for operations that take milliseconds on an idle machine
	pollInterval = 10 * time.Millisecond
)

var fresh = registry.ReadOptions{Fresh: true}

// fixture is a new namespace on the server that the tests share, with an etcd client that
// bypasses the registry.
type fixture struct {
	t       *testing.T
	cluster *testserver.Cluster
	o       etcd.Options
	raw     *clientv3.Client
	log     *logBuffer
}

func newFixture(t *testing.T) *fixture { return newFixtureOn(t, servertest.Etcd(t)) }

func newFixtureOn(t *testing.T, cluster *testserver.Cluster) *fixture {
	p := &fixture{t: t, cluster: cluster, log: &logBuffer{}}
	p.o = etcd.Options{
		Endpoints: cluster.Addrs(),
		Namespace: "/test-" + rand.Text(),
		Logger:    slogTo(p.log),
	}
	var err error
	p.raw, err = clientv3.New(clientv3.Config{Endpoints: cluster.Addrs(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { p.raw.Close() })
	return p
}

// open opens a handle with changed options.
func (p *fixture) open(changes ...func(*etcd.Options)) *etcd.Client {
	p.t.Helper()
	o := p.o
	for _, change := range changes {
		change(&o)
	}
	c, err := etcd.Open(p.t.Context(), o)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, c.Close(context.Background())) })
	return c
}

// get reads a stored key below the namespace.
func (p *fixture) get(key string) *clientv3.GetResponse {
	p.t.Helper()
	resp, err := p.raw.Get(p.t.Context(), p.o.Namespace+key)
	require.NoError(p.t, err)
	return resp
}

func (p *fixture) put(key, value string, opts ...clientv3.OpOption) {
	p.t.Helper()
	_, err := p.raw.Put(p.t.Context(), p.o.Namespace+key, value, opts...)
	require.NoError(p.t, err)
}

func mustCommit(t *testing.T, r registry.Registry, ops ...registry.Op) registry.Rev {
	t.Helper()
	rev, err := r.Txn(t.Context(), registry.Txn{Then: ops})
	require.NoError(t, err)
	return rev
}

func openSession(t *testing.T, r registry.Registry) registry.Session {
	t.Helper()
	s, err := r.OpenSession(t.Context(), registry.SessionOptions{TTL: ttl})
	require.NoError(t, err)
	return s
}

func openWatch(t *testing.T, r registry.Registry, dir registry.Key) registry.Watcher {
	t.Helper()
	w, err := r.Watch(t.Context(), dir, registry.WatchOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return w
}

func nextBatch(t *testing.T, w registry.Watcher) registry.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longWait)
	defer cancel()
	b, err := w.Next(ctx)
	require.NoError(t, err)
	return b
}

func keys(entries []registry.Entry) []registry.Key {
	all := []registry.Key{}
	for _, e := range entries {
		all = append(all, e.Key)
	}
	return all
}

func slogTo(b *logBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// logBuffer collects log output.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
