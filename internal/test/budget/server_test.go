package budget_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// serverStore is a namespace of a real server. Tests on one server run one at a time.
type serverStore struct {
	server  *testserver.Member
	root    string
	log     storelog.Log
	proxies map[string]*tcpproxy.Proxy // by instance
	dial    func(ctx context.Context, endpoint, root string, audit time.Duration) (registry.Registry, error)
	// toCounts converts the server's metrics to counts.
	toCounts func(counters map[string]float64) counts

	received []judge.Commit // commits not returned yet
	last     counts         // the server's counts at the last call
}

// roots numbers the namespaces.
var roots atomic.Int64

func newEtcd(t *testing.T) *serverStore {
	c := servertest.Etcd(t)
	return newServer(t, c, &serverStore{
		dial: func(ctx context.Context, endpoint, root string, audit time.Duration) (registry.Registry, error) {
			return etcd.Open(ctx, etcd.Options{Endpoints: []string{endpoint}, Namespace: root, AuditEvery: audit})
		},
		// The log syncs by a Put, which the registry never uses.
		toCounts: func(n map[string]float64) counts {
			handled := func(method string) int {
				sum := 0.0
				for _, code := range []string{"OK", "Unavailable", "DeadlineExceeded", "Canceled", "Unknown"} {
					sum += n[fmt.Sprintf(`grpc_server_handled_total{grpc_code="%s",grpc_method="%s",grpc_service="etcdserverpb.KV",grpc_type="unary"}`, code, method)]
				}
				return int(sum)
			}
			return counts{ // events excluded: most went to the log
				txns:  handled("Txn"),
				reads: handled("Range"),
				beats: int(n[`grpc_server_msg_received_total{grpc_method="LeaseKeepAlive",grpc_service="etcdserverpb.Lease",grpc_type="bidi_stream"}`]),
			}
		},
	}, func(root string) (storelog.Log, error) { return storelog.Etcd(t.Context(), c.Addrs(), root, nil) })
}

func newZooKeeper(t *testing.T) *serverStore {
	c := servertest.ZooKeeper(t)
	s := &serverStore{
		dial: func(ctx context.Context, endpoint, root string, audit time.Duration) (registry.Registry, error) {
			return zookeeper.Open(ctx, zookeeper.Options{Endpoints: []string{endpoint}, Namespace: root, AuditEvery: audit})
		},
	}
	s.toCounts = func(n map[string]float64) counts {
		// The server counts writing requests; separately all others, including pings and syncs;
		// and reads by the first segment of their paths.
		read := int(n["zk_cnt_"+s.root[1:]+"_read_per_namespace"])
		events := 0.0
		for _, what := range []string{"changed", "created", "deleted", "children"} {
			name := "node_" + what
			events += n["zk_sum_"+name+"_watch_count"]
		}
		return counts{
			txns:   int(n["zk_cnt_updatelatency"]),
			reads:  read,
			events: int(events),
			beats:  int(n["zk_cnt_readlatency"]) - read,
		}
	}
	return newServer(t, c, s, func(root string) (storelog.Log, error) {
		return storelog.ZooKeeper(t.Context(), c.Addrs()[0], c.Members()[0].DataDir(), root)
	})
}

func newServer(t *testing.T, c *testserver.Cluster, s *serverStore, open func(root string) (storelog.Log, error)) *serverStore {
	s.server = c.Members()[0]
	s.root = fmt.Sprint("/budget", roots.Add(1))
	s.proxies = map[string]*tcpproxy.Proxy{}
	var err error
	s.log, err = open(s.root)
	require.NoError(t, err)
	t.Cleanup(func() { s.log.Close() })
	return s
}

func (s *serverStore) open(t testing.TB, name string) registry.Registry {
	p, err := tcpproxy.Listen(s.server.Addr())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	s.proxies[name] = p
	reg, err := s.dial(t.Context(), p.Addr(), s.root, -1)
	require.NoError(t, err)
	return reg
}

func (s *serverStore) silence(name string) (heal func()) { return s.proxies[name].Blackhole() }

func (s *serverStore) follow() []judge.Commit {
	for _, c := range s.log.Take() {
		if c.Err == nil && len(c.Then) > 0 {
			s.received = append(s.received, c)
		}
	}
	all := s.received
	s.received = nil
	return all
}

// settling is the time that a server needs to update its metrics.
const settling = 30 * time.Millisecond

// count waits for a moment without commits, so that the metrics cover exactly the earlier
// commits.
func (s *serverStore) count(t testing.TB) counts {
	t.Helper()
	for {
		require.NoError(t, s.log.Sync(t.Context()))
		before := s.follow()
		time.Sleep(settling)
		counters, err := s.server.Counters(t.Context())
		require.NoError(t, err)
		now := s.toCounts(counters)
		require.NoError(t, s.log.Sync(t.Context()))
		after := s.follow()
		s.received = slices.Concat(before, after)
		if len(after) > 0 {
			continue
		}
		c := counts{
			commits: s.follow(),
			txns:    now.txns - s.last.txns,
			reads:   now.reads - s.last.reads,
			events:  now.events - s.last.events,
			beats:   now.beats - s.last.beats,
		}
		s.last = now
		return c
	}
}

func (s *serverStore) pace() time.Duration { return 500 * time.Millisecond }

func (s *serverStore) patience() time.Duration { return 2 * time.Minute }
