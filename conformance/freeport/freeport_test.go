package freeport

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReserve_ReturnsAPortOnce(t *testing.T) {
	p, err := Reserve()
	require.NoError(t, err)
	defer p.Release()

	_, err = reserve(p.Number)
	require.Error(t, err)

	p.Release()
	again, err := reserve(p.Number)
	require.NoError(t, err)
	again.Release()
}

func TestReserve_LeavesThePortFreeForListeners(t *testing.T) {
	p, err := Reserve()
	require.NoError(t, err)
	defer p.Release()
	for range 3 { // the owner may listen repeatedly
		l, err := net.Listen("tcp4", p.Addr())
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

func TestListen_RetriesWhileThePortIsInUse(t *testing.T) {
	p, err := Reserve()
	require.NoError(t, err)
	defer p.Release()
	before, err := p.Listen()
	require.NoError(t, err)
	time.AfterFunc(20*time.Millisecond, func() { before.Close() })
	l, err := p.Listen()
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestReserve_SkipsPortsInUse(t *testing.T) {
	p, err := Reserve()
	require.NoError(t, err)
	l, err := net.Listen("tcp4", p.Addr())
	require.NoError(t, err)
	defer l.Close()
	p.Release()

	_, err = reserve(p.Number)
	require.Error(t, err)
	u, err := net.ListenPacket("udp4", p.Addr()) // the failed call released its UDP port
	require.NoError(t, err)
	u.Close()
}
