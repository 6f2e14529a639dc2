package zookeeperbackend

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/test/fullstore"
)

// users is the number of distinct credentials; every znode of a namespace lists them all.
const users = 8

func user(index int) string { return fmt.Sprintf("machine%d", index) }

// password is the password of every machine.
const password = "secret"

// aclWithout grants permissions to all machines except those given.
func aclWithout(without ...string) []zk.ACL {
	var all []zk.ACL
	for i := range users {
		if name := user(i); !slices.Contains(without, name) {
			all = append(all, zk.DigestACL(zk.PermAll, name, password)...)
		}
	}
	return all
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// withAdmin connects with the most privileged credentials of the cluster.
func (s *store) withAdmin(do func(*zk.Conn)) {
	conn, events, err := zk.Connect(s.Cluster.Addrs(), 10*time.Second, zk.WithLogger(silent{}))
	s.must(err)
	defer func() {
		conn.Close()
		for range events { // waits for the library's goroutines
		}
	}()
	if s.SuperPassword != "" {
		s.must(conn.AddAuth("digest", []byte("super:"+s.SuperPassword)))
	}
	do(conn)
}

// revoke removes the permissions of a machine on all znodes of the namespace.
func (s *store) revoke(name string) (restore func()) {
	m := s.machine(name)
	set := func(acl []zk.ACL) {
		s.withAdmin(func(conn *zk.Conn) { s.setACL(conn, s.namespace, acl) })
	}
	set(aclWithout(m.user))
	return sync.OnceFunc(func() { set(aclWithout()) })
}

func (s *store) setACL(conn *zk.Conn, path string, acl []zk.ACL) {
	_, err := conn.SetACL(path, acl, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return
	}
	s.must(err)
	names, _, err := conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return
	}
	s.must(err)
	for _, name := range names {
		s.setACL(conn, path+"/"+name, acl)
	}
}

// fill sets a quota on the namespace that it already exceeds.
func (s *store) fill() (free func()) {
	s.withAdmin(func(conn *zk.Conn) { s.must(fullstore.FillZooKeeper(conn, s.namespace)) })
	return sync.OnceFunc(func() {
		s.withAdmin(func(conn *zk.Conn) { s.must(fullstore.FreeZooKeeper(conn, s.namespace)) })
	})
}
