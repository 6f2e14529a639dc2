package tcpproxy

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/freeport"
)

func TestProxy_Forwards(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	a, b := dial(t, p), dial(t, p)
	a.send("one")
	b.send("two")
	a.expectLine("ONE")
	b.expectLine("TWO")
	require.Equal(t, 2, p.Connections())
	require.EqualValues(t, 8, p.Traffic(ToServer))
	require.EqualValues(t, 8, p.Traffic(ToClient))
}

func TestProxy_ForwardsTheEnd(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	t.Run("of the client's direction", func(t *testing.T) {
		c := dial(t, p)
		c.send("a")
		require.NoError(t, c.CloseWrite())
		c.expectLine("A") // the other direction is still open
		c.expectEOF()
	})
	t.Run("by the server", func(t *testing.T) {
		c := dial(t, p)
		c.send("a")
		c.expectLine("A")
		e.closeConns()
		c.expectEOF()
	})
	t.Run("and releases its connections", func(t *testing.T) {
		require.Eventually(t, func() bool { return p.Connections() == 0 }, patience, time.Millisecond)
	})
}

func TestProxy_ResetsClientsWithoutServer(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	e.Listener.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestSetPatience_WaitsForAServer(t *testing.T) {
	port, err := freeport.Reserve()
	require.NoError(t, err)
	defer port.Release()
	p := newProxy(t, port.Addr())
	p.SetPatience(patience)
	c := dial(t, p)
	c.send("a")
	c.expectNothing()
	newEchoAt(t, port.Addr())
	c.expectLine("A")

	p.SetUpstream("127.0.0.1:1") // without a listener
	d := dial(t, p)
	d.expectNothing()
	p.Close() // returns at once
	d.expectReset()
}

func TestSetUpstream_ActsOnNewConnections(t *testing.T) {
	before, after := newEcho(t), newEcho(t)
	p := newProxy(t, before.Addr().String())
	c := dial(t, p)
	c.send("a")
	c.expectLine("A")
	p.SetUpstream(after.Addr().String())
	require.Equal(t, after.Addr().String(), p.Upstream())
	c.send("b")
	c.expectLine("B")
	d := dial(t, p)
	d.send("c")
	d.expectLine("C")
	require.Equal(t, 1, before.count("b"))
	require.Equal(t, 1, after.count("c"))
}

func TestListenRouted_RoutesEachConnection(t *testing.T) {
	one, two := newEcho(t), newEcho(t)
	var mu sync.Mutex
	routes := map[string]string{} // by client
	p, err := ListenRouted(func(client, _ net.Addr) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if to, ok := routes[client.String()]; ok {
			return to, nil
		}
		return "", net.ErrClosed
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	heal := p.OneWay(ToServer) // until the routes are set
	a, b, c := dial(t, p), dial(t, p), dial(t, p)
	mu.Lock()
	routes[a.LocalAddr().String()] = one.Addr().String()
	routes[b.LocalAddr().String()] = two.Addr().String()
	mu.Unlock()
	heal()
	a.send("a")
	a.expectLine("A")
	b.send("b")
	b.expectLine("B")
	require.Equal(t, 1, one.count("a"))
	require.Equal(t, 1, two.count("b"))
	c.expectReset()
}

func TestCut(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	c := dial(t, p)
	c.send("a")
	c.expectLine("A")
	p.Cut()
	c.expectReset()
	c = dial(t, p)
	c.send("b")
	c.expectLine("B")
}

func TestRefuse(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	c := dial(t, p)
	c.send("a")
	c.expectLine("A")

	first, second := p.Refuse(), p.Refuse()
	c.expectReset()
	refused := func() {
		_, err := net.Dial("tcp", p.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	refused()
	first()
	first() // counts once
	refused()
	second()
	c = dial(t, p)
	c.send("b")
	c.expectLine("B")
}

func TestRefuse_EndsQuietlyAfterClose(t *testing.T) {
	p := newProxy(t, newEcho(t).Addr().String())
	heal := p.Refuse()
	p.Close()
	heal()
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestBlackhole(t *testing.T) {
	t.Run("holds both directions until heal", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		heal := p.Blackhole()
		c.send("a")
		c.expectNothing()
		require.Zero(t, e.count("a"))
		heal()
		heal()
		c.expectLine("A")
	})
	t.Run("accepts connections without a server", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		heal := p.Blackhole()
		c := dial(t, p)
		c.send("a")
		c.expectNothing()
		require.Zero(t, e.accepted())
		heal()
		c.expectLine("A")
	})
	t.Run("hides the end of a connection", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		c.send("a")
		c.expectLine("A")
		defer p.Blackhole()()
		e.closeConns()
		c.expectNothing()
	})
	t.Run("loses bytes whose sender has closed", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		c.send("a")
		c.expectLine("A")
		heal := p.Blackhole()
		c.send("late")
		c.Close()
		require.Eventually(t, func() bool { return anyGivenUp(p) }, patience, time.Millisecond)
		heal()
		require.Eventually(t, func() bool { return p.Connections() == 0 }, patience, time.Millisecond)
		require.Zero(t, e.count("late"))
	})
	t.Run("loses bytes of a cut connection", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		c.send("a")
		c.expectLine("A")
		heal := p.Blackhole()
		c.send("late")
		p.Cut()
		heal()
		c.expectReset()
		require.Eventually(t, func() bool { return p.Connections() == 0 }, patience, time.Millisecond)
		require.Zero(t, e.count("late"))
	})
	t.Run("does not block Close", func(t *testing.T) {
		p := newProxy(t, newEcho(t).Addr().String())
		c := dial(t, p)
		p.Blackhole()
		c.send("a")
		p.Close()
		c.expectReset()
	})
}

// anyGivenUp reports whether the proxy has noticed that a client closed.
func anyGivenUp(p *Proxy) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		if k.hasGivenUp(ToServer) {
			return true
		}
	}
	return false
}

func TestOneWay(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	c := dial(t, p)
	c.send("first")
	c.expectLine("FIRST")
	t.Run("to the server", func(t *testing.T) {
		heal := p.OneWay(ToServer)
		c.send("a")
		c.expectNothing()
		require.Zero(t, e.count("a"))
		heal()
		c.expectLine("A")
	})
	t.Run("to the client", func(t *testing.T) {
		heal := p.OneWay(ToClient)
		c.send("b")
		c.expectNothing()
		require.Equal(t, 1, e.count("b"))
		heal()
		c.expectLine("B")
	})
	t.Run("counts", func(t *testing.T) {
		one, two := p.OneWay(ToServer), p.OneWay(ToServer)
		c.send("c")
		one()
		c.expectNothing()
		two()
		c.expectLine("C")
	})
}

func TestClose(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	c := dial(t, p)
	c.send("a")
	c.expectLine("A")
	p.Close()
	p.Close()
	c.expectReset()
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// Faults start and end while connections open and close.
func TestProxy_UnderStress(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 30 {
				conn, err := net.DialTimeout("tcp", p.Addr(), patience)
				if err != nil {
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
				_, _ = conn.Write([]byte("a\n"))
				_, _ = conn.Read(make([]byte, 8))
				conn.Close()
			}
		})
	}
	for _, fault := range []func() func(){
		p.Refuse, p.Blackhole,
		func() func() { return p.OneWay(ToClient) },
		func() func() { return p.Delay(ToServer, 5*time.Millisecond) },
		func() func() { return p.Throttle(ToClient, 100) },
		func() func() { _, cancel := p.LoseNextReply(); return cancel },
		func() func() { return p.Cut },
	} {
		wg.Go(func() {
			for range 30 {
				heal := fault()
				<-time.After(time.Millisecond)
				heal()
			}
		})
	}
	wg.Wait()
	c := dial(t, p)
	c.send("after")
	c.expectLine("AFTER")
}
