package tcpproxy

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProxy_Forwards(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	a, b := dial(t, p), dial(t, p)
	a.say("one")
	b.say("two")
	a.hears("ONE")
	b.hears("TWO")
	require.Equal(t, 2, p.Connections())
	require.EqualValues(t, 8, p.Traffic(ToServer))
	require.EqualValues(t, 8, p.Traffic(ToClient))
}

func TestRefuse(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	c := dial(t, p)
	c.say("a")
	c.hears("A")
	heal := p.Refuse()
	c.isReset()
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	other := p.Refuse()
	heal()
	heal() // counts once
	_, err = net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	other()
	c = dial(t, p)
	c.say("b")
	c.hears("B")
}

func TestBlackhole(t *testing.T) {
	t.Run("holds both directions and goes on", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		heal := p.Blackhole()
		c.say("a")
		c.hearsNothing()
		require.False(t, e.heard("a"))
		heal()
		c.hears("A")
	})
	t.Run("accepts connections that lead nowhere", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		heal := p.Blackhole()
		c := dial(t, p)
		c.say("a")
		c.hearsNothing()
		require.Zero(t, e.accepted())
		heal()
		c.hears("A")
	})
}

func TestOneWay(t *testing.T) {
	t.Run("to the server", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		heal := p.OneWay(ToServer)
		c.say("a")
		c.hearsNothing()
		require.False(t, e.heard("a"))
		heal()
		c.hears("A")
	})
	t.Run("to the client", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		heal := p.OneWay(ToClient)
		c.say("a")
		c.hearsNothing()
		require.True(t, e.heard("a"))
		heal()
		c.hears("A")
	})
}

func TestCut(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	c := dial(t, p)
	c.say("a")
	c.hears("A")
	p.Cut()
	c.isReset()
	dial(t, p).say("b")
	require.Eventually(t, func() bool { return e.heard("b") }, patience, time.Millisecond)
}
