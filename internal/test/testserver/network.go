package testserver

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/rota-dev/rota/conformance/tcpproxy"
)

// network connects the members of an ensemble: one proxy per pair of members and
// direction of connection, so that each can be cut.
type network struct {
	proxies []*tcpproxy.Proxy
	ways    map[way][]*tcpproxy.Proxy
}

type way struct{ from, to *Member }

// newLinkProxy creates a proxy to a port of to that only from uses.
func (n *network) newLinkProxy(from, to *Member, r role) (*tcpproxy.Proxy, error) {
	p, err := tcpproxy.Listen(to.port[r].Addr())
	if err != nil {
		return nil, err
	}
	n.proxies = append(n.proxies, p)
	if n.ways == nil {
		n.ways = map[way][]*tcpproxy.Proxy{}
	}
	w := way{from, to}
	n.ways[w] = append(n.ways[w], p)
	return p, nil
}

// newEntranceProxy creates the single address at which all other members reach a port of
// to. It routes each connection to the proxy of the member that opened it.
func (n *network) newEntranceProxy(to *Member, r role, others []*Member) (*tcpproxy.Proxy, error) {
	links := map[*Member]*tcpproxy.Proxy{}
	for _, from := range others {
		p, err := n.newLinkProxy(from, to, r)
		if err != nil {
			return nil, err
		}
		links[from] = p
	}
	entrance, err := tcpproxy.ListenRouted(func(client, server net.Addr) (string, error) {
		for from, p := range links {
			if ok, err := connected(from.Pid(), client, server); err == nil && ok {
				return p.Addr(), nil
			}
		}
		return "", errors.New("connection is not from a member")
	})
	if err == nil {
		n.proxies = append(n.proxies, entrance)
	}
	return entrance, err
}

func (n *network) close() {
	for _, p := range n.proxies {
		p.Close()
	}
}

// Isolate silently cuts the member off from the other members, in both directions, until
// heal. Its clients still reach it. It has no effect on a single server.
func (m *Member) Isolate() (heal func()) {
	n := m.cluster.network
	if n == nil {
		panic(fmt.Sprintf("testserver: isolate %s: the cluster has DirectPeers", m.name))
	}
	var heals []func()
	for w, proxies := range n.ways {
		if w.from != m && w.to != m {
			continue
		}
		for _, p := range proxies {
			heals = append(heals, p.Blackhole())
		}
	}
	return sync.OnceFunc(func() {
		for _, heal := range heals {
			heal()
		}
	})
}
