package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// store is the meeting point of the workers of a run: a new server, or the memory of the
// only worker.
type store struct {
	url string
	// addr is the host:port of the server.
	addr string
	// open returns a registry on the store, for this process. Nil if it holds none.
	open func(ctx context.Context) (registry.Registry, error)
	// server is the only member. Nil if it is no etcd or ZooKeeper.
	server *testserver.Member
	// pid is the server's process, which may have children. Zero means that there is none.
	pid int
	// traffic returns the counters of the server.
	traffic func(ctx context.Context) (traffic, error)
	stop    func()
}

// traffic is counted by a server.
type traffic struct {
	bytes        float64 // received from clients; 0 if the server does not count them
	transactions float64 // writes, including refused ones; commands on Redis
}

// storeKinds starts an empty store of each kind.
var storeKinds = map[string]func(ctx context.Context) (*store, error){
	"memory":    startMemory,
	"etcd":      startEtcd,
	"zookeeper": startZooKeeper,
	"redis":     startRedis,
	"postgres":  startPostgres,
}

// memoryURL makes the worker open a registry in its own memory.
const memoryURL = "memory"

func startMemory(context.Context) (*store, error) {
	server, clients := memory.New(), 0
	return &store{
		url: memoryURL,
		open: func(context.Context) (registry.Registry, error) {
			clients++
			return server.Client(fmt.Sprint(clients)), nil
		},
		traffic: func(context.Context) (traffic, error) { return traffic{}, nil },
		stop:    func() {},
	}, nil
}

// startEtcd starts a single etcd that syncs to disk.
func startEtcd(ctx context.Context) (*store, error) {
	c, err := testserver.Etcd(ctx, testserver.EtcdOptions{Log: os.Stderr, Flags: []string{"--unsafe-no-fsync=false"}})
	if err != nil {
		return nil, err
	}
	return newClusterStore(c, "etcd", func(n map[string]float64) traffic {
		t := traffic{bytes: n["etcd_network_client_grpc_received_bytes_total"]}
		for name, v := range n {
			if strings.HasPrefix(name, "grpc_server_handled_total") && isEtcdWrite(name) {
				t.transactions += v
			}
		}
		return t
	}), nil
}

func isEtcdWrite(counter string) bool {
	for _, method := range []string{"Txn", "Put", "DeleteRange"} {
		if strings.Contains(counter, `grpc_method="`+method+`"`) {
			return true
		}
	}
	return false
}

// startZooKeeper starts a single ZooKeeper that syncs to disk, with a heap for production and all
// optimizations of its Java machine.
func startZooKeeper(ctx context.Context) (*store, error) {
	c, err := testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{
		Log: os.Stderr, Lines: []string{"forceSync=yes"}, JVM: []string{"-Xmx1g"},
	})
	if err != nil {
		return nil, err
	}
	return newClusterStore(c, "zk", func(n map[string]float64) traffic {
		return traffic{bytes: n["zk_bytes_received_count"], transactions: n["zk_cnt_updatelatency"]}
	}), nil
}

// requests returns how many requests the server has received, but those for its counters.
func (s *store) requests(ctx context.Context) (total float64, err error) {
	counters, err := s.server.Counters(ctx)
	for name, v := range counters {
		if strings.HasPrefix(name, "grpc_server_started_total") || name == "zk_packets_received" {
			total += v
		}
	}
	return total, err
}

// newClusterStore returns a store with a namespace below /bench.
func newClusterStore(c *testserver.Cluster, scheme string, count func(counters map[string]float64) traffic) *store {
	server := c.Members()[0]
	url := fmt.Sprintf("%s://%s/bench", scheme, server.Addr())
	return &store{
		url:  url,
		addr: server.Addr(),
		open: func(ctx context.Context) (registry.Registry, error) {
			return openRegistry(ctx, url, slog.New(slog.DiscardHandler))
		},
		server: server,
		pid:    server.Pid(),
		traffic: func(ctx context.Context) (traffic, error) {
			counters, err := server.Counters(ctx)
			return count(counters), err
		},
		stop: c.Stop,
	}
}

// cpu returns the processor time that the server has used.
func (s *store) cpu() (total time.Duration, err error) {
	if s.pid == 0 {
		return 0, nil
	}
	for _, pid := range childrenOf(s.pid) {
		d, err := processCPU(pid)
		if err != nil && pid == s.pid { // a child may have ended
			return 0, err
		}
		total += d
	}
	return total, nil
}
