package etcdbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/fullstore"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

// store is a namespace of a cluster with the machines that use it.
type store struct {
	Config
	t         testing.TB
	namespace string

	mu       sync.Mutex
	machines map[string]*machine

	stallMu sync.Mutex // separate, since mu is held during calls to the store
	resume  func()     // ends the current stall; or nil
}

func newStore(t testing.TB, c Config) *store {
	s := &store{Config: c, t: t, namespace: "/test-" + rand.Text(), machines: map[string]*machine{}}
	t.Cleanup(s.close)
	return s
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.machines {
		m.close()
		if m.user != nil {
			s.withAdmin("remove a user", m.user.remove)
		}
	}
}

// machine returns the machine of a name. Consecutive new machines try different members
// first; each knows all members.
func (s *store) machine(name string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[name]
	if m == nil {
		m = newMachine(s.t, name, len(s.machines), s.Cluster.Members())
		s.machines[name] = m
		if s.RootPassword != "" {
			m.user = &user{name: s.namespace[1:] + "-" + name, password: rand.Text(), prefix: s.namespace + "/"}
			s.withAdmin("make a user", m.user.create)
		}
	}
	return m
}

func (s *store) faultControls() *conformance.Store {
	controls := &conformance.Store{
		Connect:     s.connect,
		Expire:      s.expire,
		Partition:   s.partition,
		LoseReply:   func(machine string) { s.machine(machine).wire.LoseReply() },
		LoseRequest: func(machine string) { s.machine(machine).wire.LoseRequest() },
		HoldCommit:  s.holdCommit,
		Delay: func(machine string, d time.Duration) (restore func()) {
			return s.machine(machine).onEachProxy(func(p *tcpproxy.Proxy) func() { return p.Delay(tcpproxy.ToClient, d) })
		},
		Stall:     s.stall,
		Restart:   s.restart,
		Compact:   s.compact,
		Starve:    func(machine string) (feed func()) { return s.machine(machine).starve() },
		Members:   func() int { return len(s.Cluster.Members()) },
		Move:      func(machine string) { s.machine(machine).move() },
		FillQuota: s.fill,
	}
	if s.RootPassword != "" {
		controls.Revoke = s.revoke
	}
	if !s.single() {
		controls.HalfOpen = func(machine string) (heal func()) { return s.machine(machine).first().Blackhole() }
		controls.KillLeader = s.killLeader
		controls.PauseLeader = s.pauseLeader
		controls.RollingRestart = s.rollingRestart
		controls.Isolate = func(machine string) (heal func()) { return s.machine(machine).member().Isolate() }
		controls.Replace = s.replace
	}
	return controls
}

func (s *store) connect(t testing.TB, machine string) registry.Registry {
	t.Helper()
	m := s.machine(machine)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := etcd.Options{Endpoints: m.endpoints(), InOrder: true, Namespace: s.namespace, DialOptions: m.dialOptions()}
	if m.user != nil {
		o.Username, o.Password = m.user.name, m.user.password
	}
	c, err := etcd.Open(ctx, o)
	if err != nil {
		t.Fatalf("connect %s: %v", machine, err)
	}
	return c
}

func (s *store) must(what string, err error) {
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
		panic(fmt.Sprintf("%s: %v", what, err)) // a fault control cannot return an error
	}
}

// withAdmin calls f with a client that bypasses all proxies, and retries while the
// members elect. The client is closed after the call, since the suite checks for leftover
// goroutines.
func (s *store) withAdmin(what string, f func(ctx context.Context, c *clientv3.Client) error) {
	s.endStall()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer awaitGoroutines(grpcGoroutines())
	for i := 0; ; i++ {
		members := s.Cluster.Addrs()
		err := s.withAdminAt(ctx, members[i%len(members)], f)
		if err == nil {
			return
		}
		if !isTransient(err) || ctx.Err() != nil {
			s.must(what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// withAdminAt calls f with a client of one member if that member serves.
func (s *store) withAdminAt(ctx context.Context, member string, f func(ctx context.Context, c *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	probe, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	config := clientv3.Config{
		Endpoints: []string{member}, Logger: zap.NewNop(), Context: ctx, DialTimeout: time.Second,
	}
	if s.RootPassword != "" {
		config.Username, config.Password = "root", s.RootPassword
	}
	c, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Get(probe, s.namespace, clientv3.WithCountOnly()); err != nil {
		return err
	}
	return f(ctx, c)
}

func isTransient(err error) bool {
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		return answer.Code() == codes.Unavailable
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}, status.Code(err))
}

func grpcGoroutines() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "created by google.golang.org/grpc")
}

// awaitGoroutines waits for goroutines of a closed client to return. Handles may start
// others meanwhile.
func awaitGoroutines(before int) {
	for range 50 {
		if grpcGoroutines() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (s *store) expire(id registry.SessionID) {
	lease, err := strconv.ParseInt(string(id), 16, 64)
	s.must("expire", err)
	s.withAdmin("expire", func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Revoke(ctx, clientv3.LeaseID(lease))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil // it has already ended
		}
		return err
	})
}

func (s *store) compact() {
	s.withAdmin("compact", func(ctx context.Context, c *clientv3.Client) error {
		now, err := c.Get(ctx, s.namespace, clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		_, err = c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return err
	})
}

// fill raises the alarm that a member raises when its data exceeds the quota. Writes are
// refused until the alarm is disarmed.
func (s *store) fill() (free func()) {
	s.withAdmin("fill", fullstore.FillEtcd)
	return sync.OnceFunc(func() { s.withAdmin("free", fullstore.FreeEtcd) })
}

// holdCommit breaks the connection of the transaction and sends it again at release: a server
// drops the requests of a connection that has ended.
func (s *store) holdCommit(machine string) (release func()) {
	const prefix = 5 // of a gRPC message: compression flag and length
	return s.machine(machine).wire.Hold(func(txn []byte) {
		var late pb.TxnRequest
		s.must("parse a held transaction", proto.Unmarshal(txn[prefix:], &late))
		s.withAdmin("release a transaction", func(ctx context.Context, c *clientv3.Client) error {
			_, _ = pb.NewKVClient(c.ActiveConnection()).Txn(ctx, &late) // applied or refused, once
			return nil
		})
	})
}

func (s *store) partition(machine string, c conformance.Cut) (heal func()) {
	return s.machine(machine).onEachProxy(func(p *tcpproxy.Proxy) func() {
		switch c {
		case conformance.Refuse:
			return p.Refuse()
		case conformance.ToStore:
			return p.OneWay(tcpproxy.ToServer)
		case conformance.FromStore:
			return p.OneWay(tcpproxy.ToClient)
		}
		return p.Blackhole()
	})
}

func (s *store) stall() (resume func()) {
	s.endStall()
	for _, m := range s.Cluster.Members() {
		s.must("pause", m.Pause())
	}
	resume = sync.OnceFunc(func() {
		for _, m := range s.Cluster.Members() {
			s.must("resume", m.Resume())
		}
	})
	s.stallMu.Lock()
	defer s.stallMu.Unlock()
	s.resume = resume
	return resume
}

// endStall ends a stall for a control that needs an answer from the store: the caller
// waits for it and cannot end the stall itself.
func (s *store) endStall() {
	s.stallMu.Lock()
	resume := s.resume
	s.resume = nil
	s.stallMu.Unlock()
	if resume != nil {
		resume()
	}
}

func (s *store) leader() *testserver.Member {
	s.endStall()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	m, err := s.Cluster.Leader(ctx)
	s.must("find the leader", err)
	return m
}

func (s *store) killLeader() (restart func()) {
	m := s.leader()
	m.Kill()
	return sync.OnceFunc(func() {
		s.endStall()
		s.must("restart", m.Restart(context.Background()))
	})
}

func (s *store) pauseLeader() (resume func()) {
	m := s.leader()
	s.must("pause", m.Pause())
	return sync.OnceFunc(func() { s.must("resume", m.Resume()) })
}

func (s *store) restart() {
	s.endStall()
	s.must("restart", s.Cluster.Restart(context.Background()))
}

func (s *store) rollingRestart() {
	s.endStall()
	for _, m := range s.Cluster.Members() {
		s.must("restart", m.Restart(context.Background()))
	}
}

// replace replaces a follower; other controls disturb the leader.
func (s *store) replace() {
	leader := s.leader()
	for _, m := range s.Cluster.Members() {
		if m != leader {
			s.must("replace", m.Replace(context.Background()))
			return
		}
	}
}

func (s *store) revoke(machine string) (restore func()) {
	u := s.machine(machine).user
	s.withAdmin("revoke", u.revokeAccess)
	return sync.OnceFunc(func() { s.withAdmin("restore", u.grantAccess) })
}
