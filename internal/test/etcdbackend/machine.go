package etcdbackend

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver"
)

// machine is a client host. It reaches each member through a proxy of its own, which
// injects faults into all its handles.
type machine struct {
	t       testing.TB
	name    string
	members []*testserver.Member // the first is tried first
	user    *user                // nil without credentials
	wire    *tcpproxy.Requests

	mu      sync.Mutex
	proxies []*tcpproxy.Proxy // of members
	old     []*tcpproxy.Proxy // proxies from before a move
	starved int
	fed     chan struct{} // closed when starved becomes 0
}

func newMachine(t testing.TB, name string, index int, members []*testserver.Member) *machine {
	m := &machine{t: t, name: name, wire: tcpproxy.NewRequests(newParser)}
	for i := range members {
		m.members = append(m.members, members[(index+i)%len(members)])
	}
	m.proxies = m.newProxies()
	return m
}

func (m *machine) newProxies() []*tcpproxy.Proxy {
	proxies := make([]*tcpproxy.Proxy, len(m.members))
	for i, member := range m.members {
		p, err := tcpproxy.Listen(member.Addr())
		if err != nil {
			m.t.Fatalf("machine %s: %v", m.name, err)
		}
		p.SetFilter(m.wire.Filter)
		proxies[i] = p
	}
	return proxies
}

func (m *machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range append(m.old, m.proxies...) {
		p.Close()
	}
}

// endpoints returns host names of the members, which only this machine's dialer resolves.
func (m *machine) endpoints() []string {
	names := make([]string, len(m.members))
	for i := range m.members {
		names[i] = fmt.Sprintf("member-%d.%s.test:2379", i, m.name)
	}
	return names
}

func (m *machine) address(name string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, known := range m.endpoints() {
		if name == known {
			return m.proxies[i].Addr(), nil
		}
	}
	return "", fmt.Errorf("machine %s cannot resolve host %s", m.name, name)
}

func (m *machine) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			addr, err := m.address(name)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}),
		grpc.WithChainStreamInterceptor(m.starveStreams),
	}
}

// move changes the addresses of all members.
func (m *machine) move() {
	proxies := m.newProxies()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.proxies {
		p.Close()
	}
	m.old, m.proxies = append(m.old, m.proxies...), proxies
}

func (m *machine) first() *tcpproxy.Proxy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proxies[0]
}

// member returns the member that the machine is connected to, or else tries first.
func (m *machine) member() *testserver.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range m.proxies {
		if p.Connections() > 0 {
			return m.members[i]
		}
	}
	return m.members[0]
}

// onEachProxy injects a fault into all proxies, until heal.
func (m *machine) onEachProxy(impose func(*tcpproxy.Proxy) (heal func())) (heal func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var heals []func()
	for _, p := range m.proxies {
		heals = append(heals, impose(p))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// starve blocks renewals until feed.
func (m *machine) starve() (feed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starved++; m.starved == 1 {
		m.fed = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.starved--; m.starved == 0 {
			close(m.fed)
		}
	})
}

// fedChannel returns a channel that is closed when starvation ends, or nil if the machine
// is not starved.
func (m *machine) fedChannel() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starved == 0 {
		return nil
	}
	return m.fed
}

const renewals = "/etcdserverpb.Lease/LeaseKeepAlive"

func (m *machine) starveStreams(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil || method != renewals {
		return s, err
	}
	return starvedStream{s, m}, nil
}

// starvedStream blocks sends while its machine is starved.
type starvedStream struct {
	grpc.ClientStream
	machine *machine
}

func (s starvedStream) SendMsg(msg any) error {
	if fed := s.machine.fedChannel(); fed != nil {
		select {
		case <-fed:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
	return s.ClientStream.SendMsg(msg)
}
