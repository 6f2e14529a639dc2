package zookeeper

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/zkwire"
)

// frameOf returns a frame that contains the parts in network byte order.
func frameOf(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int32:
			b = binary.BigEndian.AppendUint32(b, uint32(p))
		case int64:
			b = binary.BigEndian.AppendUint64(b, uint64(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func TestMemberConn_ParsesTheTraffic(t *testing.T) {
	password := []byte("0123456789abcdef")
	long := make([]byte, 10_000)
	stream := frameOf(int32(0), int32(4000), int64(77), int32(16), password, []byte{0})
	stream = append(stream, frameOf(int32(1), int64(100), int32(0), long)...)
	stream = append(stream, frameOf(int32(-1), int64(-1), int32(0), long[:50])...)
	stream = append(stream, frameOf(int32(-2), int64(120), int32(0))...)
	stream = append(stream, frameOf(int32(2), int64(90), int32(-101))...) // a lower zxid changes nothing
	stream = append(stream, frameOf(int32(7), int64(121), int32(0))...)
	for _, portion := range []int{1, 3, 4, 16, 37, 4096, len(stream)} {
		var granted []zkwire.Grant
		here, there := net.Pipe()
		w := &memberConn{Conn: here, greetingTimeout: time.Second, granted: func(g zkwire.Grant) { granted = append(granted, g) }}
		w.closeXid.Store(7)
		for rest := stream; len(rest) > 0; {
			n := min(portion, len(rest))
			w.scanFrames(rest[:n])
			rest = rest[n:]
			if len(rest) > 0 {
				require.False(t, w.closed.Load())
			}
		}
		require.Len(t, granted, 1)
		require.EqualValues(t, 77, granted[0].Session)
		require.Equal(t, 4*time.Second, granted[0].Timeout)
		require.Equal(t, password, granted[0].Password[:])
		require.EqualValues(t, 121, w.zxid.Load())
		require.True(t, w.closed.Load(), "the server has confirmed the end")
		here.Close()
		there.Close()
	}
}

// The library does not store a zxid that it does not see, so no other goroutine reads it
// without a lock.
func TestMemberConn_HidesTheZxidsOfRepliesOnly(t *testing.T) {
	greeting := frameOf(int32(0), int32(4000), int64(77), int32(16), []byte("0123456789abcdef"), []byte{0})
	stream, seen := slices.Clip(greeting), slices.Clip(greeting)
	for i, rest := range [][]byte{nil, []byte("data"), make([]byte, 5000)} {
		stream = append(stream, frameOf(int32(i), int64(1<<40+i), int32(-101), rest)...)
		seen = append(seen, frameOf(int32(i), int64(0), int32(-101), rest)...)
	}
	for _, veiled := range []bool{true, false} {
		for portion := range len(greeting) + 40 {
			got := slices.Clone(stream)
			here, there := net.Pipe()
			w := &memberConn{Conn: here, hideZxids: veiled, granted: func(zkwire.Grant) {}}
			for part := range slices.Chunk(got, portion+1) {
				w.scanFrames(part)
			}
			if veiled {
				require.Equal(t, seen, got)
			} else {
				require.Equal(t, stream, got)
			}
			require.EqualValues(t, 1<<40+2, w.zxid.Load())
			here.Close()
			there.Close()
		}
	}
}

func TestMemberConn_BoundsTheGreetingOnly(t *testing.T) {
	w := &memberConn{greetingTimeout: time.Second}
	far := time.Now().Add(time.Hour)
	require.WithinDuration(t, time.Now().Add(time.Second), w.boundDeadline(far), 500*time.Millisecond)
	require.WithinDuration(t, time.Now().Add(time.Second), w.boundDeadline(time.Time{}), 500*time.Millisecond)
	near := time.Now().Add(time.Millisecond)
	require.Equal(t, near, w.boundDeadline(near))
	w.greeted.Store(true)
	require.Equal(t, far, w.boundDeadline(far))
	require.Zero(t, w.boundDeadline(time.Time{}))
}
