package conformance

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
)

// TestCountGoroutines_LeavesOutProxies opens a connection through a proxy, as a member of a store may
// do while a case counts.
func TestCountGoroutines_LeavesOutProxies(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	p, err := tcpproxy.Listen(l.Addr().String())
	require.NoError(t, err)
	defer p.Close()
	connect := func() {
		one, err := net.Dial("tcp", p.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { one.Close() })
		other, err := l.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { other.Close() })
		for _, ends := range [][2]net.Conn{{one, other}, {other, one}} { // then all goroutines of the proxy run
			_, err = ends[0].Write([]byte("x"))
			require.NoError(t, err)
			_, err = ends[1].Read(make([]byte, 1))
			require.NoError(t, err)
		}
	}
	connect()
	before := countGoroutines(&test{})
	connect()
	require.Equal(t, before, countGoroutines(&test{}))

	end := make(chan struct{})
	defer close(end)
	go func() { <-end }()
	require.Equal(t, before+1, countGoroutines(&test{}))
}
