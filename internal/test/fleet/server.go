package fleet

import (
	"context"
	"strings"

	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/internal/test/testserver"
)

// Server is the store of a fleet, and how to read what it has committed.
type Server struct {
	*testserver.Cluster
	scheme string
	log    func(ctx context.Context, addrs []string) (storelog.Log, error)
}

// root is where the fleet's registry has its keys in the store.
const root = "/fleet"

// Etcd starts a store of so many members.
func Etcd(ctx context.Context, members int) (*Server, error) {
	c, err := testserver.Etcd(ctx, testserver.EtcdOptions{Members: members})
	if err != nil {
		return nil, err
	}
	return &Server{c, "etcd", func(ctx context.Context, addrs []string) (storelog.Log, error) {
		return storelog.Etcd(ctx, addrs, root, nil)
	}}, nil
}

// ZooKeeper starts a store of so many members.
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

// url is that of the registry behind addresses.
func (s *Server) url(addrs []string) string {
	return s.scheme + "://" + strings.Join(addrs, ",") + root
}
