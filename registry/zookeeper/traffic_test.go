package zookeeper

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
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
		w := &memberConn{
			Conn: &recordedConn{reads: slices.Clone(stream), portion: portion}, greetingTimeout: time.Second,
			granted: func(g zkwire.Grant) { granted = append(granted, g) },
		}
		w.closeXid.Store(7)
		passed := make([]byte, len(stream))
		for rest := passed; len(rest) > 0; {
			n, err := w.Read(rest[:min(portion, len(rest))])
			require.NoError(t, err)
			rest = rest[n:]
			if len(rest) > 16+4 {
				require.False(t, w.closed.Load())
			}
		}
		require.Equal(t, stream, passed)
		require.Len(t, granted, 1)
		require.EqualValues(t, 77, granted[0].Session)
		require.Equal(t, 4*time.Second, granted[0].Timeout)
		require.Equal(t, password, granted[0].Password[:])
		require.EqualValues(t, 121, w.zxid.Load())
		require.True(t, w.closed.Load(), "the server has confirmed the end")
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
			w := &memberConn{Conn: &recordedConn{reads: slices.Clone(stream), portion: portion + 1}, hideZxids: veiled, granted: func(zkwire.Grant) {}}
			got := make([]byte, len(stream))
			_, err := io.ReadFull(w, got)
			require.NoError(t, err)
			if veiled {
				require.Equal(t, seen, got)
			} else {
				require.Equal(t, stream, got)
			}
			require.EqualValues(t, 1<<40+2, w.zxid.Load())
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

// recordedConn records writes, deadlines and Close.
type recordedConn struct {
	net.Conn
	reads             []byte
	portion           int // of one read at most; 0 means any
	written           []byte
	readEnd, writeEnd time.Time
	broken, wasClosed bool
}

func (c *recordedConn) Read(b []byte) (int, error) {
	if len(c.reads) == 0 {
		return 0, io.EOF
	}
	if c.portion > 0 {
		b = b[:min(len(b), c.portion)]
	}
	n := copy(b, c.reads)
	c.reads = c.reads[n:]
	return n, nil
}

func (c *recordedConn) Write(b []byte) (int, error) {
	if c.broken {
		return 0, io.ErrClosedPipe
	}
	c.written = append(c.written, b...)
	return len(b), nil
}

func (c *recordedConn) Close() error {
	c.wasClosed = true
	return nil
}

func (c *recordedConn) SetReadDeadline(t time.Time) error {
	c.readEnd = t
	return nil
}

func (c *recordedConn) SetWriteDeadline(t time.Time) error {
	c.writeEnd = t
	return nil
}

func (c *recordedConn) SetDeadline(t time.Time) error {
	c.readEnd, c.writeEnd = t, t
	return nil
}

func TestMemberConn_UsesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures []error
		conn := &recordedConn{}
		w := &memberConn{
			Conn: conn, greetingTimeout: time.Second, granted: func(zkwire.Grant) {},
			failed: func(err error) { failures = append(failures, err) },
		}
		closing := int32(zkwire.Close)
		far := time.Now().Add(time.Hour)
		require.NoError(t, w.SetReadDeadline(far))
		require.NoError(t, w.SetWriteDeadline(far))
		require.Equal(t, []time.Time{time.Now().Add(time.Second), time.Now().Add(time.Second)}, []time.Time{conn.readEnd, conn.writeEnd})

		first := frameOf(int32(9), closing) // looks like a request to end the session
		n, err := w.Write(first)
		require.NoError(t, err)
		require.Equal(t, len(first), n)
		require.Zero(t, w.closeXid.Load(), "the first frame is a greeting")
		_, err = w.Read(make([]byte, 9))
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, failures, 1, "there is no answer to the greeting")

		conn.reads = frameOf(int32(0), int32(4000), int64(77), int32(16), []byte("0123456789abcdef"), []byte{0})
		b := make([]byte, 100)
		n, err = w.Read(b[:10])
		require.NoError(t, err)
		require.Equal(t, 10, n)
		require.Len(t, failures, 1, "a part of the answer is no failure")
		n, err = w.Read(b)
		require.NoError(t, err)
		require.Equal(t, 4+37-10, n)
		require.True(t, w.greeted.Load())
		require.True(t, conn.readEnd.IsZero() && conn.writeEnd.IsZero(), "the bound of the greeting is over")
		require.NoError(t, w.SetReadDeadline(far))
		require.Equal(t, far, conn.readEnd)

		reply := func(xid, code int32) {
			conn.reads = frameOf(xid, int64(5), code)
			_, err := w.Read(b)
			require.NoError(t, err)
		}
		reply(0, 0)
		require.False(t, w.closed.Load(), "before the request to end the session")
		for _, request := range [][]byte{frameOf(int32(1), int32(zkwire.Sync)), frameOf(int32(2)), {0, 0}, frameOf(int32(3), closing)} {
			require.Zero(t, w.closeXid.Load())
			_, err = w.Write(request)
			require.NoError(t, err)
		}
		require.EqualValues(t, 3, w.closeXid.Load())
		reply(3, -112)
		require.False(t, w.closed.Load(), "the server has refused it")
		reply(3, 0)
		require.True(t, w.closed.Load())

		_, err = w.Read(b)
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, failures, 1, "the greeting was answered")
		require.False(t, conn.wasClosed)
		conn.broken = true
		n, err = w.Write(first)
		require.NoError(t, err, "the error comes from Read")
		require.Equal(t, len(first), n)
		require.True(t, conn.wasClosed)
	})
}
