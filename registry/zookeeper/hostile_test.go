package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/zkwire"
	"github.com/rota-dev/rota/registry"
)

// longLength is a length that no frame can have.
const longLength = int32(1<<31 - 1)

// hostileReplies are what a server must not be able to do harm with, given the xid of a request.
var hostileReplies = map[string]func(xid int32) []byte{
	"a frame of 2 GiB":         func(int32) []byte { return binary.BigEndian.AppendUint32(nil, 1<<31-1) },
	"a frame of 4 GiB":         func(int32) []byte { return binary.BigEndian.AppendUint32(nil, 1<<32-1) },
	"a frame above the bound":  func(int32) []byte { return binary.BigEndian.AppendUint32(nil, zkwire.MaxFrame+1) },
	"a frame without a head":   func(int32) []byte { return frameOf(int32(-1)) },
	"an empty frame":           func(int32) []byte { return frameOf() },
	"an event without a path":  func(int32) []byte { return frameOf(int32(-1), int64(-1), int32(0), int32(1)) },
	"an event with a long one": func(int32) []byte { return frameOf(int32(-1), int64(-1), int32(0), int32(1), int32(3), longLength) },
	"a reply that ends early":  func(xid int32) []byte { return frameOf(xid, int64(1), int32(0)) },
	"a reply of long texts": func(xid int32) []byte {
		return frameOf(xid, int64(1), int32(0), longLength, longLength, longLength, longLength)
	},
}

// TestOpen_SurvivesAHostileServer would end the process, or need many gigabytes, if the client library
// saw the frames.
func TestOpen_SurvivesAHostileServer(t *testing.T) {
	for name, reply := range hostileReplies {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int32
			addr := listen(t, func(conn net.Conn) {
				connections.Add(1)
				if err := skipFrame(conn); err != nil {
					return
				}
				conn.Write(frameOf(int32(0), int32(6000), int64(77), int32(16), make([]byte, 16), []byte{0}))
				xid, err := nextXid(conn)
				if err != nil {
					return
				}
				conn.Write(append(reply(xid), make([]byte, 1<<16)...))
				io.Copy(io.Discard, conn)
			})
			var log bytes.Buffer
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Open(ctx, Options{Endpoints: []string{addr}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.Error(t, err)
			runtime.ReadMemStats(&after)
			const perConnection = 4 << 20 // of the library's own buffers
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(connections.Load()+4)*perConnection, "%d connections", connections.Load())
			require.Contains(t, log.String(), "closed a connection whose bytes are not ZooKeeper's protocol")
			require.Contains(t, log.String(), addr)
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), "one line for many connections")
		})
	}
}

func TestOpen_RefusesAHostileGreeting(t *testing.T) {
	for name, greeting := range map[string][]byte{
		"a frame of 2 GiB":           binary.BigEndian.AppendUint32(nil, 1<<31-1),
		"text":                       []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"no timeout":                 frameOf(int32(0), int32(0), int64(77), int32(16), make([]byte, 16), []byte{0}),
		"a negative timeout":         frameOf(int32(0), int32(-1), int64(77), int32(16), make([]byte, 16), []byte{0}),
		"a password of 2 GiB":        frameOf(int32(0), int32(6000), int64(77), longLength, make([]byte, 16), []byte{0}),
		"a greeting that ends early": frameOf(int32(0), int32(6000)),
		"a long greeting":            frameOf(int32(0), int32(6000), int64(77), int32(16), make([]byte, 4096)),
	} {
		t.Run(name, func(t *testing.T) {
			addr := listen(t, func(conn net.Conn) {
				conn.Write(greeting)
				io.Copy(io.Discard, conn)
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Open(t.Context(), Options{Endpoints: []string{addr}})
			require.ErrorIs(t, err, registry.ErrUnavailable)
			require.ErrorContains(t, err, "does not answer as a ZooKeeper server does")
			require.ErrorIs(t, err, zkwire.ErrMalformed)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
		})
	}
}

// skipFrame reads a frame.
func skipFrame(conn net.Conn) error {
	_, err := nextXid(conn)
	return err
}

// nextXid reads a request that expects a reply and returns its xid.
func nextXid(conn net.Conn) (int32, error) {
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return 0, err
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			return 0, err
		}
		if r, ok := zkwire.ParseRequest(b); !ok {
			return 0, fmt.Errorf("request of %d bytes", len(b))
		} else if r.Op != zkwire.Ping {
			return r.Xid, nil
		}
	}
}
