package zookeeperbackend

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// namespaces numbers the stores; each has a namespace of its own.
var namespaces atomic.Int64

// store is a namespace of a cluster.
type store struct {
	Config
	t         testing.TB
	namespace string

	mu       sync.Mutex
	machines map[string]*machine
	grants   map[int64]zkwire.Grant // of all observed sessions, by id
}

func newStore(t testing.TB, c Config) *store {
	s := &store{
		Config: c, t: t,
		namespace: fmt.Sprintf("/conformance-%d", namespaces.Add(1)),
		machines:  make(map[string]*machine),
		grants:    make(map[int64]zkwire.Grant),
	}
	t.Cleanup(s.close)
	s.must(c.Cluster.AwaitServing(s.timeoutContext()))
	return s
}

func (s *store) faultControls() *conformance.Store {
	controls := &conformance.Store{
		Connect: s.connect,
		Expire:  s.expire,
		Partition: func(name string, c conformance.Cut) (heal func()) {
			return s.machine(name).partition(c)
		},
		LoseReply:   func(name string) { s.machine(name).wire.LoseReply() },
		LoseRequest: func(name string) { s.machine(name).wire.LoseRequest() },
		HoldCommit:  func(name string) (release func()) { return s.machine(name).wire.Hold(nil) },
		Delay: func(name string, d time.Duration) (restore func()) {
			return s.machine(name).onEachProxy(func(p *tcpproxy.Proxy) func() { return p.Delay(tcpproxy.ToClient, d) })
		},
		Stall:   s.stall,
		Restart: func() { s.must(s.Cluster.Restart(s.timeoutContext())) },
		Starve:  func(name string) (feed func()) { return s.machine(name).wire.Starve() },
		Members: func() int { return len(s.Cluster.Members()) },
		Move:    func(name string) { s.machine(name).move() },
	}
	if s.SuperPassword != "" {
		controls.Revoke = s.revoke
	}
	if s.Quota {
		controls.FillQuota = s.fill
	}
	if !s.single() {
		controls.HalfOpen = func(name string) (heal func()) { return s.machine(name).first().Blackhole() }
		controls.KillLeader = s.killLeader
		controls.PauseLeader = s.pauseLeader
		controls.RollingRestart = s.rollingRestart
		controls.Isolate = func(name string) (heal func()) { return s.machine(name).member().Isolate() }
		controls.Replace = s.replace
	}
	return controls
}

// controlTimeout bounds the effect of a fault control on servers.
const controlTimeout = time.Minute

func (s *store) timeoutContext() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
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

// machine returns the machine of a name. Consecutive new machines try different members
// first.
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
	r, err := zookeeper.Open(s.timeoutContext(), s.machine(name).options())
	s.must(err)
	return r
}

// recordGrant stores the password of a session, which expire needs.
func (s *store) recordGrant(g zkwire.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Session != 0 {
		s.grants[g.Session] = g
	}
}

// expire ends a session as its client would, with its id and password. The client sees it
// as an expired session.
func (s *store) expire(id registry.SessionID) {
	var number uint64
	if _, err := fmt.Sscanf(string(id), "%016x-", &number); err != nil {
		s.t.Fatalf("session %s: %v", id, err)
	}
	s.mu.Lock()
	g, ok := s.grants[int64(number)]
	s.mu.Unlock()
	if !ok {
		s.t.Fatalf("session %s has no recorded password", id)
	}
	ctx := s.timeoutContext()
	for {
		err := endSession(ctx, s.Cluster.Addrs()[0], g)
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
	for _, m := range s.Cluster.Members() {
		if m.Addr() == address {
			return m
		}
	}
	s.t.Fatalf("no member serves at %s", address)
	return nil
}

func (s *store) leader() *testserver.Member {
	m, err := s.Cluster.Leader(s.timeoutContext())
	s.must(err)
	return m
}

// stall suspends all servers.
func (s *store) stall() (resume func()) {
	for _, m := range s.Cluster.Members() {
		s.must(m.Pause())
	}
	return sync.OnceFunc(func() {
		for _, m := range s.Cluster.Members() {
			s.must(m.Resume())
		}
	})
}

func (s *store) killLeader() (restart func()) {
	m := s.leader()
	m.Kill()
	return sync.OnceFunc(func() { s.must(m.Restart(s.timeoutContext())) })
}

func (s *store) pauseLeader() (resume func()) {
	m := s.leader()
	s.must(m.Pause())
	return sync.OnceFunc(func() { s.must(m.Resume()) })
}

func (s *store) rollingRestart() {
	for _, m := range s.Cluster.Members() {
		s.must(m.Restart(s.timeoutContext()))
		s.leader()
	}
}

// replace replaces a follower by an empty member.
func (s *store) replace() {
	leader := s.leader()
	for _, m := range s.Cluster.Members() {
		if m != leader {
			s.must(m.Replace(s.timeoutContext()))
			return
		}
	}
}
