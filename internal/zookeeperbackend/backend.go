// Package zookeeperbackend describes registry/zookeeper to the conformance suite: real
// servers, and for each machine a proxy before each of them that does to it what a
// network does.
package zookeeperbackend

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/driver"
	"github.com/rota-dev/rota/internal/tcpproxy"
	"github.com/rota-dev/rota/internal/testserver"
	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// New describes the registry on a cluster. Each handle is passed through wrap.
func New(cluster *testserver.Cluster, ttl time.Duration, wrap func(registry.Registry) registry.Registry) conformance.Backend {
	lacks := conformance.Lacks{
		conformance.Compact:   "keeps no history that could be forgotten",
		conformance.Move:      "the addresses of a test's servers are all the loopback's; its own test looks names up",
		conformance.FillQuota: "a full disk stops the server",
		conformance.Revoke:    "rights are kept with each znode",
	}
	if len(cluster.Members()) < quorum {
		for _, lever := range []string{
			conformance.Isolate, conformance.HalfOpen, conformance.KillLeader,
			conformance.PauseLeader, conformance.RollingRestart, conformance.Replace,
		} {
			lacks[lever] = "has one member only"
		}
	}
	return conformance.Backend{
		Open: func(t testing.TB) *conformance.Store { return open(t, cluster, wrap) },
		TTL:  ttl,
		Packages: []string{
			reflect.TypeFor[zookeeper.Client]().PkgPath(), reflect.TypeFor[driver.Session]().PkgPath(), reflect.TypeFor[zk.Conn]().PkgPath(),
		},
		Lacks: lacks,
	}
}

// quorum is the number of members from which on one can be missing.
const quorum = 3

// namespaces counts the stores, each of which has a namespace of its own.
var namespaces atomic.Int64

// store is a namespace of a cluster.
type store struct {
	t         testing.TB
	cluster   *testserver.Cluster
	namespace string
	wrap      func(registry.Registry) registry.Registry

	mu       sync.Mutex
	machines map[string]*machine
	grants   map[int64]zkwire.Grant // of all sessions that were seen, by their ids
}

func open(t testing.TB, cluster *testserver.Cluster, wrap func(registry.Registry) registry.Registry) *conformance.Store {
	s := &store{
		t: t, cluster: cluster, wrap: wrap,
		namespace: fmt.Sprintf("/conformance/%d", namespaces.Add(1)),
		machines:  make(map[string]*machine),
		grants:    make(map[int64]zkwire.Grant),
	}
	t.Cleanup(s.close)
	levers := &conformance.Store{
		Connect: s.connect,
		Expire:  s.expire,
		Partition: func(name string, c conformance.Cut) (heal func()) {
			return s.machine(name).partition(c)
		},
		LoseReply:   func(name string) { s.machine(name).next(loseReply) },
		LoseRequest: func(name string) { s.machine(name).next(loseRequest) },
		HoldCommit:  func(name string) (release func()) { return s.machine(name).hold() },
		Delay: func(name string, d time.Duration) (restore func()) {
			return s.machine(name).each(func(p *tcpproxy.Proxy) func() { return p.Delay(tcpproxy.ToClient, d) })
		},
		Stall:   s.stall,
		Restart: func() { s.must(cluster.Restart(s.context())) },
		Starve:  func(name string) (feed func()) { return s.machine(name).starve() },
		Members: func() int { return len(cluster.Members()) },
	}
	if len(cluster.Members()) >= quorum {
		levers.Isolate = func(name string) (heal func()) { return s.machine(name).member().Isolate() }
		levers.Replace = s.replace
		levers.HalfOpen = func(name string) (heal func()) { return s.machine(name).first().Blackhole() }
		levers.KillLeader = s.killLeader
		levers.PauseLeader = s.pauseLeader
		levers.RollingRestart = s.rollingRestart
	}
	return levers
}

// leverTimeout bounds what a lever does to servers.
const leverTimeout = time.Minute

func (s *store) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), leverTimeout)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *store) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		m.close()
	}
}

// machine returns that of a name. Machines that are new one after the other have another
// member as their first.
func (s *store) machine(name string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[name]
	if m == nil {
		var err error
		m, err = newMachine(s, len(s.machines))
		s.must(err)
		s.machines[name] = m
	}
	return m
}

func (s *store) connect(t testing.TB, name string) registry.Registry {
	t.Helper()
	r, err := zookeeper.Open(s.context(), zookeeper.Options{
		Endpoints: s.machine(name).addresses(),
		InOrder:   true,
		Namespace: s.namespace,
	})
	s.must(err)
	return s.wrap(r)
}

// granted takes note of a session.
func (s *store) granted(g zkwire.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Session != 0 {
		s.grants[g.Session] = g
	}
}

// expire ends a session as one who has its id and password, which is what its own client
// does. The client hears of it as of any other end.
func (s *store) expire(id registry.SessionID) {
	var number uint64
	if _, err := fmt.Sscanf(string(id), "%016x-", &number); err != nil {
		s.t.Fatalf("session %s: %v", id, err)
	}
	s.mu.Lock()
	g, ok := s.grants[int64(number)]
	s.mu.Unlock()
	if !ok {
		s.t.Fatalf("session %s was not seen", id)
	}
	ctx := s.context()
	for {
		err := endSession(ctx, s.cluster.Addrs()[0], g)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			s.t.Fatalf("end session %s: %v", id, err)
		}
	}
}

func endSession(ctx context.Context, address string, g zkwire.Grant) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return zkwire.EndSession(conn, g)
}

// member returns the member that serves clients at an address.
func (s *store) member(address string) *testserver.Member {
	for _, m := range s.cluster.Members() {
		if m.Addr() == address {
			return m
		}
	}
	s.t.Fatalf("no member serves at %s", address)
	return nil
}

// replace puts an empty member in the place of one that does not lead.
func (s *store) replace() {
	leader, err := s.cluster.Leader(s.context())
	s.must(err)
	for _, m := range s.cluster.Members() {
		if m != leader {
			s.must(m.Replace(s.context()))
			return
		}
	}
}

// stall stops all servers in their tracks.
func (s *store) stall() (resume func()) {
	for _, m := range s.cluster.Members() {
		s.must(m.Pause())
	}
	return sync.OnceFunc(func() {
		for _, m := range s.cluster.Members() {
			s.must(m.Resume())
		}
	})
}

func (s *store) killLeader() (restart func()) {
	m, err := s.cluster.Leader(s.context())
	s.must(err)
	m.Kill()
	return sync.OnceFunc(func() { s.must(m.Restart(s.context())) })
}

func (s *store) pauseLeader() (resume func()) {
	m, err := s.cluster.Leader(s.context())
	s.must(err)
	s.must(m.Pause())
	return sync.OnceFunc(func() { s.must(m.Resume()) })
}

func (s *store) rollingRestart() {
	for _, m := range s.cluster.Members() {
		s.must(m.Restart(s.context()))
		_, err := s.cluster.Leader(s.context())
		s.must(err)
	}
}
