package tcpproxy

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo is a server that answers each line with the line in capitals.
type echo struct {
	net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex
	lines []string // received
	conns []net.Conn
}

func newEcho(t *testing.T) *echo { return newEchoAt(t, "127.0.0.1:0") }

func newEchoAt(t *testing.T, addr string) *echo {
	l, err := net.Listen("tcp4", addr)
	require.NoError(t, err)
	e := &echo{Listener: l}
	e.wg.Go(e.serve)
	t.Cleanup(func() {
		l.Close()
		e.closeConns()
		e.wg.Wait()
	})
	return e
}

func (e *echo) serve() {
	for {
		conn, err := e.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.conns = append(e.conns, conn)
		e.mu.Unlock()
		e.wg.Go(func() {
			defer conn.Close()
			in := bufio.NewScanner(conn)
			in.Buffer(nil, 1<<20)
			for in.Scan() {
				e.mu.Lock()
				e.lines = append(e.lines, in.Text())
				e.mu.Unlock()
				if _, err := io.WriteString(conn, strings.ToUpper(in.Text())+"\n"); err != nil {
					return
				}
			}
		})
	}
}

func (e *echo) closeConns() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		c.Close()
	}
}

func (e *echo) accepted() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// count returns how often the server received a line.
func (e *echo) count(line string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, l := range e.lines {
		if l == line {
			n++
		}
	}
	return n
}

func newProxy(t *testing.T, upstream string) *Proxy {
	p, err := Listen(upstream)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// client is a connection through a proxy.
type client struct {
	*net.TCPConn
	t  *testing.T
	in *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *client {
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &client{conn.(*net.TCPConn), t, bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(c.t, err)
}

const patience = 10 * time.Second

func (c *client) expectLine(line string) {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(patience)))
	got, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line+"\n", got)
}

// aMoment exceeds the duration of any round trip without faults.
const aMoment = 100 * time.Millisecond

func (c *client) expectNothing() {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(aMoment)))
	_, err := c.in.ReadString('\n')
	var timeout net.Error
	require.ErrorAs(c.t, err, &timeout)
	require.True(c.t, timeout.Timeout(), "%v", err)
}

func (c *client) expectReset() {
	c.t.Helper()
	c.expectResetAfter()
}

// expectResetAfter allows for a beginning of these lines before the reset.
func (c *client) expectResetAfter(lines ...string) {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(patience)))
	got, err := c.in.ReadString('\n')
	for err == nil && len(lines) > 0 {
		require.Equal(c.t, lines[0]+"\n", got)
		lines = lines[1:]
		got, err = c.in.ReadString('\n')
	}
	require.ErrorContains(c.t, err, "reset", "after %q", got)
}

func (c *client) expectEOF() {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err := c.in.ReadString('\n')
	require.ErrorIs(c.t, err, io.EOF)
}
