package fleet

import (
	"context"
	"strings"

	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/internal/test/testserver"
)

// Server is the store of a fleet, with a reader of its commits.
type Server struct {
	*testserver.Cluster
	scheme string
	log    func(ctx context.Context, addrs []string) (storelog.Log, error)
}

// root is the namespace root of the fleet's registry in the store.
const root = "/fleet"

// Etcd starts an etcd cluster.
func Etcd(ctx context.Context, members int) (*Server, error) {
	c, err := testserver.Etcd(ctx, testserver.EtcdOptions{Members: members})
	if err != nil {
		return nil, err
	}
	return &Server{c, "etcd", func(ctx context.Context, addrs []string) (storelog.Log, error) {
		return storelog.Etcd(ctx, addrs, root, nil)
	}}, nil
}

// ZooKeeper starts a ZooKeeper ensemble.
func ZooKeeper(ctx context.Context, members int) (*Server, error) {
	c, err := testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{Members: members})
	if err != nil {
		return nil, err
	}
	return &Server{c, "zk", func(ctx context.Context, addrs []string) (storelog.Log, error) {
		if len(addrs) == 1 {
			return storelog.ZooKeeper(ctx, addrs[0], c.Members()[0].DataDir(), root)
		}
		var members []storelog.ZooKeeperMember
		for _, m := range c.Members() {
			members = append(members, storelog.ZooKeeperMember{Addr: m.Addr(), Dir: m.DataDir()})
		}
		return storelog.ZooKeeperEnsemble(ctx, members, root)
	}}, nil
}

// url returns the registry URL of addresses.
func (s *Server) url(addrs []string) string {
	return s.scheme + "://" + strings.Join(addrs, ",") + root
}
