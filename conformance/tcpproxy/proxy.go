package tcpproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/conformance/freeport"
)

// dialTimeout bounds the connection to a local server. Its kernel answers at once or, if
// its queue is full, never.
const dialTimeout = 5 * time.Second

// dialPause is the pause between connection attempts, see SetPatience.
const dialPause = 10 * time.Millisecond

// Proxy forwards connections to a server.
type Proxy struct {
	port    *freeport.Port
	route   func(client, proxy net.Addr) (upstream string, err error)
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	wg      sync.WaitGroup
	traffic [2]atomic.Int64 // by direction

	mu       sync.Mutex
	listener net.Listener // nil while refused or closed
	refusals int
	closed   bool
	upstream string
	patience time.Duration
	filter   func() Filter
	ways     [2]directionState // by direction
	changed  chan struct{}
	links    map[*link]struct{}
	lose     []*loss // pending orders without a request
}

// Listen creates a proxy for the server at upstream, a host:port. It listens until Close.
func Listen(upstream string) (*Proxy, error) {
	return newProxyFor(upstream, nil)
}

// ListenRouted creates a proxy that calls route with the two addresses of each connection
// to select its server. If route fails, the connection is reset.
func ListenRouted(route func(client, proxy net.Addr) (upstream string, err error)) (*Proxy, error) {
	return newProxyFor("", route)
}

func newProxyFor(upstream string, route func(client, proxy net.Addr) (string, error)) (*Proxy, error) {
	port, err := freeport.Reserve()
	if err != nil {
		return nil, fmt.Errorf("create proxy: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Proxy{
		port: port, upstream: upstream, route: route, ctx: ctx, stop: stop,
		changed: make(chan struct{}), links: map[*link]struct{}{},
	}
	if p.route == nil {
		p.route = func(net.Addr, net.Addr) (string, error) { return p.Upstream(), nil }
	}
	if err := p.startListening(); err != nil {
		stop()
		port.Release()
		return nil, fmt.Errorf("create proxy: %w", err)
	}
	return p, nil
}

// startListening starts to accept. The caller holds p.mu or is the only user.
func (p *Proxy) startListening() error {
	l, err := p.port.Listen()
	if err != nil {
		return err
	}
	p.listener = l
	p.wg.Go(func() { p.acceptLoop(l) })
	return nil
}

// Addr returns the host:port on which the proxy listens. It never changes.
func (p *Proxy) Addr() string { return p.port.Addr() }

// Port returns the port of Addr.
func (p *Proxy) Port() int { return p.port.Number }

// Upstream returns the address of the server.
func (p *Proxy) Upstream() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// SetUpstream sets the server for new connections.
func (p *Proxy) SetUpstream(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// SetPatience sets how long the proxy retries a server that refuses connections, while
// the client waits. Without patience a client that connects just before the server
// listens sees a reset instead of a refusal, and may take longer to retry.
func (p *Proxy) SetPatience(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patience = d
}

func (p *Proxy) getPatience() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.patience
}

// Traffic returns the number of bytes forwarded so far.
func (p *Proxy) Traffic(d Direction) int64 { return p.traffic[d].Load() }

// Connections returns the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close resets all connections, stops listening and waits for all goroutines. Calling it
// twice is legal.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.closeListener()
	p.mu.Unlock()
	p.stop()
	p.Cut()
	p.wg.Wait()
	p.port.Release()
}

// closeListener requires p.mu.
func (p *Proxy) closeListener() {
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) acceptLoop(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			if p.isListening(l) { // for example, out of file descriptors
				time.Sleep(time.Millisecond)
				continue
			}
			return
		}
		k := newLink(p, client.(*net.TCPConn))
		if !p.addLink(k, l) {
			resetConn(k.client)
			continue
		}
		p.wg.Go(func() {
			k.forwardBoth()
			p.removeLink(k)
		})
	}
}

func (p *Proxy) isListening(l net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listener == l
}

// addLink rejects a connection that was accepted just before a Refuse.
func (p *Proxy) addLink(k *link, l net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != l {
		return false
	}
	if p.filter != nil {
		k.filter = p.filter()
	}
	p.links[k] = struct{}{}
	return true
}

func (p *Proxy) removeLink(k *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, k)
}
