package zookeeperbackend

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// machine is a client host. It reaches each member through a proxy of its own, under a
// host name.
type machine struct {
	store   *store
	user    string
	proxies []*tcpproxy.Proxy // in the order that handles try them
	wire    *tcpproxy.Requests

	mu    sync.Mutex
	moves int // how often the addresses changed
}

func newMachine(s *store, index int) (*machine, error) {
	m := &machine{
		store: s, user: user(index % users),
		wire: tcpproxy.NewRequests(func() tcpproxy.Parser { return &parser{store: s} }),
	}
	addrs := s.Cluster.Addrs()
	for i := range addrs {
		p, err := tcpproxy.Listen(addrs[(index+i)%len(addrs)])
		if err != nil {
			m.close()
			return nil, err
		}
		p.SetFilter(m.wire.Filter)
		m.proxies = append(m.proxies, p)
	}
	return m, nil
}

// options returns the options of a handle. The members' host names and addresses are made
// up by the machine and lead to its proxies.
func (m *machine) options() zookeeper.Options {
	o := zookeeper.Options{
		InOrder: true, Namespace: m.store.namespace, LookupHost: m.lookupHost,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			proxy, err := m.proxyAt(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, proxy.Addr())
		},
	}
	for i := range m.proxies {
		o.Endpoints = append(o.Endpoints, fmt.Sprintf("member%d:2181", i))
	}
	if m.store.SuperPassword != "" {
		o.Username, o.Password, o.ACL = m.user, password, aclWithout()
	}
	return o
}

// address returns the address of a member after so many moves.
func address(member, moves int) string { return fmt.Sprintf("192.0.2.%d", moves*10+member) }

func (m *machine) lookupHost(_ context.Context, host string) ([]string, error) {
	var member int
	if _, err := fmt.Sscanf(host, "member%d", &member); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return []string{address(member, m.moves)}, nil
}

func (m *machine) proxyAt(at string) (*tcpproxy.Proxy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range m.proxies {
		if at == address(i, m.moves)+":2181" {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no proxy at %s", at)
}

// move changes the addresses of all members.
func (m *machine) move() {
	m.mu.Lock()
	m.moves++
	m.mu.Unlock()
	for _, p := range m.proxies {
		p.Cut()
	}
}

func (m *machine) close() {
	for _, p := range m.proxies {
		p.Close()
	}
}

// first returns the proxy that handles try first.
func (m *machine) first() *tcpproxy.Proxy { return m.proxies[0] }

// member returns the member that the machine is connected to, or else tries first.
func (m *machine) member() *testserver.Member {
	at := m.first()
	for _, p := range m.proxies {
		if p.Connections() > at.Connections() {
			at = p
		}
	}
	return m.store.member(at.Upstream())
}

// onEachProxy injects a fault into all proxies, until undo.
func (m *machine) onEachProxy(do func(*tcpproxy.Proxy) (undo func())) (undo func()) {
	var all []func()
	for _, p := range m.proxies {
		all = append(all, do(p))
	}
	return func() {
		for _, undo := range all {
			undo()
		}
	}
}

func (m *machine) partition(c conformance.Cut) (heal func()) {
	return m.onEachProxy(func(p *tcpproxy.Proxy) func() {
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
