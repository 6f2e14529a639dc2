package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// servers holds one server of each kind, for all comparisons.
type servers struct {
	etcd, zookeeper *testserver.Cluster
	places          int
}

func startServers(ctx context.Context) (*servers, error) {
	e, err := testserver.Etcd(ctx, testserver.EtcdOptions{Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	z, err := testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{Log: os.Stderr})
	if err != nil {
		e.Stop()
		return nil, err
	}
	return &servers{etcd: e, zookeeper: z}, nil
}

func (s *servers) stop() {
	s.etcd.Stop()
	s.zookeeper.Stop()
}

// place is a part of the servers for a single run.
type place struct {
	servers *servers
	root    string // namespace, or prefix of all keys
}

func (s *servers) place() place {
	s.places++
	return place{s, fmt.Sprint("/bench", s.places)}
}

// opener opens handles on one of the servers.
type opener func(ctx context.Context, p place) (registry.Registry, error)

func onEtcd(ctx context.Context, p place) (registry.Registry, error) {
	return etcd.Open(ctx, etcd.Options{Endpoints: p.servers.etcd.Addrs(), Namespace: p.root})
}

func onZooKeeper(ctx context.Context, p place) (registry.Registry, error) {
	return zookeeper.Open(ctx, zookeeper.Options{Endpoints: p.servers.zookeeper.Addrs(), Namespace: p.root})
}

// rawEtcd returns a plain etcd client.
func (p place) rawEtcd() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: p.servers.etcd.Addrs(), Logger: zap.NewNop()})
}

// rawZooKeeper returns a plain connection of the ZooKeeper client library.
func (p place) rawZooKeeper() (*zk.Conn, error) {
	conn, _, err := zk.Connect(p.servers.zookeeper.Addrs(), 10*time.Second, zk.WithLogger(discardLogger{}))
	return conn, err
}

type discardLogger struct{}

func (discardLogger) Printf(string, ...any) {}
