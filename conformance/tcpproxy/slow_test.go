package tcpproxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDelay(t *testing.T) {
	const late = 200 * time.Millisecond
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())

	t.Run("delays one direction without reducing its throughput", func(t *testing.T) {
		c := dial(t, p)
		c.send("first")
		c.expectLine("FIRST") // it is connected
		restore := p.Delay(ToClient, late)
		defer restore()
		start := time.Now()
		for i := range 20 { // each read by itself; one after the other they would take 20 delays
			c.send("a")
			require.Eventually(t, func() bool { return e.count("a") > i }, patience, time.Millisecond)
		}
		for range 20 {
			c.expectLine("A")
		}
		took := time.Since(start)
		assert.GreaterOrEqual(t, took, late)
		assert.Less(t, took, 10*late)
	})
	t.Run("adds up and ends with restore", func(t *testing.T) {
		c := dial(t, p)
		one, two := p.Delay(ToServer, late), p.Delay(ToServer, late)
		start := time.Now()
		c.send("b")
		c.expectLine("B")
		assert.GreaterOrEqual(t, time.Since(start), 2*late)
		one()
		one()
		start = time.Now()
		c.send("c")
		c.expectLine("C")
		assert.GreaterOrEqual(t, time.Since(start), late)
		two()
		start = time.Now()
		c.send("d")
		c.expectLine("D")
		assert.Less(t, time.Since(start), late)
	})
	t.Run("forwards delayed bytes when it ends", func(t *testing.T) {
		c := dial(t, p)
		c.send("first")
		c.expectLine("FIRST")
		restore := p.Delay(ToServer, time.Hour)
		c.send("e")
		c.expectNothing()
		restore()
		c.expectLine("E")
	})
}

func TestThrottle(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	const rate = 100_000
	line := string(bytes.Repeat([]byte("x"), rate/4-1)) // a quarter of a second
	c := dial(t, p)

	slow, slower := p.Throttle(ToServer, 1_000_000), p.Throttle(ToServer, rate)
	start := time.Now()
	c.send(line)
	c.expectLine(string(bytes.ToUpper([]byte(line))))
	assert.GreaterOrEqual(t, time.Since(start), 240*time.Millisecond)
	slower()
	slower()
	slow()
	c.send("a")
	c.expectLine("A")

	tiny := p.Throttle(ToServer, 0) // still gets through
	c.send("b")
	c.expectLine("B")
	tiny()
}

func TestProxy_PropagatesBackPressure(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p := newProxy(t, l.Addr().String())
	c := dial(t, p)
	heal := p.OneWay(ToServer)
	defer heal()

	// A sender without a reader blocks, so that the buffered bytes are bounded.
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
	n, err := io.Copy(c, endless{})
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.Less(t, n, int64(64<<20))
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
