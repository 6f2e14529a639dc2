package fleet

import (
	"context"
	"log/slog"
	"strings"

	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/fullstore"
	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry"
)

// Server is the store of a fleet, with a reader of its commits.
type Server struct {
	Servers
	URL     func(addrs []string) string // of the registry at addresses
	Log     func(ctx context.Context, addrs []string) (storelog.Log, error)
	Schemes registryurl.Schemes // of URL, if package registryurl does not know it
	// SetFull makes the store refuse writes, or accept them again. It may be repeated.
	SetFull func(ctx context.Context, full bool) error
}

// open connects to the store, beside the fleet.
func (s *Server) open(ctx context.Context) (registry.Registry, error) {
	return s.Schemes.Open(ctx, s.URL(s.Addrs()), registryurl.Options{Logger: slog.New(slog.DiscardHandler)})
}

// Servers are the processes of a store.
type Servers interface {
	Addrs() []string
	Members() []Member
	Leader(ctx context.Context) (Member, error)
	Stop()
}

// Member is one process of a store.
type Member interface {
	Kill()
	// Restart restarts the process with its data, and returns when it serves.
	Restart(ctx context.Context) error
}

// cluster makes a testserver.Cluster Servers.
type cluster struct{ *testserver.Cluster }

func (c cluster) Members() []Member {
	var all []Member
	for _, m := range c.Cluster.Members() {
		all = append(all, m)
	}
	return all
}

func (c cluster) Leader(ctx context.Context) (Member, error) { return c.Cluster.Leader(ctx) }

// Store is a kind of store.
type Store struct {
	Name    string
	Start   func(ctx context.Context, members int) (*Server, error)
	Members []int  // the numbers of members that it can have
	Chaos   string // the directory of the command chaos for it, in the repository
}

// Stores returns the stores whose clients this module has.
func Stores() []Store {
	const chaos = "internal/test/fleet/chaos"
	return []Store{{"etcd", Etcd, []int{1, 3}, chaos}, {"zookeeper", ZooKeeper, []int{1, 3}, chaos}}
}

// root is the namespace root of the fleet's registry in the store.
const root = "/fleet"

// Etcd starts an etcd cluster.
func Etcd(ctx context.Context, members int) (*Server, error) {
	c, err := testserver.Etcd(ctx, testserver.EtcdOptions{Members: members})
	if err != nil {
		return nil, err
	}
	return &Server{Servers: cluster{c}, URL: urlOf("etcd"), Log: func(ctx context.Context, addrs []string) (storelog.Log, error) {
		return storelog.Etcd(ctx, addrs, root, nil)
	}, SetFull: func(ctx context.Context, full bool) error { return fullstore.SetEtcd(ctx, c.Addrs(), full) }}, nil
}

// ZooKeeper starts a ZooKeeper ensemble.
func ZooKeeper(ctx context.Context, members int) (*Server, error) {
	c, err := testserver.ZooKeeper(ctx, testserver.ZooKeeperOptions{Members: members, Lines: []string{fullstore.EnforceQuota}})
	if err != nil {
		return nil, err
	}
	return &Server{Servers: cluster{c}, URL: urlOf("zk"), Log: func(ctx context.Context, addrs []string) (storelog.Log, error) {
		if len(addrs) == 1 {
			return storelog.ZooKeeper(ctx, addrs[0], c.Members()[0].DataDir(), root)
		}
		var members []storelog.ZooKeeperMember
		for _, m := range c.Members() {
			members = append(members, storelog.ZooKeeperMember{Addr: m.Addr(), Dir: m.DataDir()})
		}
		return storelog.ZooKeeperEnsemble(ctx, members, root)
	}, SetFull: func(ctx context.Context, full bool) error { return fullstore.SetZooKeeper(ctx, c.Addrs(), root, full) }}, nil
}

func urlOf(scheme string) func(addrs []string) string {
	return func(addrs []string) string { return scheme + "://" + strings.Join(addrs, ",") + root }
}
