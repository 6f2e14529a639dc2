package zookeeper

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/zkwire"
)

// memberConn is a network connection to a member, as the client library uses it. It parses the
// traffic for facts that the library does not expose: the granted session, the zxid of each
// reply, and the confirmation that the session has ended.
type memberConn struct {
	net.Conn
	// greetingTimeout bounds the server's answer to the greeting. Without it, a server that
	// accepts connections and never answers would hold the library up for nearly seven session
	// timeouts.
	greetingTimeout time.Duration
	greeted         atomic.Bool
	granted         func(zkwire.Grant) // called by the reader before the library sees the greeting
	failed          func(error)        // called if there is no answer to the greeting
	// hideZxids clears the zxids of replies before the library sees them. The library stores
	// the last one without a lock, and reads it from another goroutine if there are watches
	// when it connects.
	hideZxids bool

	zxid     atomic.Int64 // highest in a reply; later replies are at least as new
	closeXid atomic.Int32 // of the request to end the session; 0 before
	closed   atomic.Bool  // the server has confirmed that request

	// Only for the reader:
	frameLength int                                   // of the current frame
	frameRead   int                                   // bytes read of the frame, its length included
	frameHead   [lengthBytes + zkwire.GrantBytes]byte // the first of these bytes
}

func (w *memberConn) SetReadDeadline(t time.Time) error {
	return w.Conn.SetReadDeadline(w.boundDeadline(t))
}

func (w *memberConn) SetWriteDeadline(t time.Time) error {
	return w.Conn.SetWriteDeadline(w.boundDeadline(t))
}

func (w *memberConn) boundDeadline(t time.Time) time.Time {
	if w.greeted.Load() {
		return t
	}
	if most := time.Now().Add(w.greetingTimeout); t.IsZero() || t.After(most) {
		return most // also if the library removes its deadline during the greeting
	}
	return t
}

// Write writes one whole request. On an error it breaks the connection and returns nil, so that
// the error comes from Read. An error from Write would make the library answer the request twice,
// at once and when the connection ends. It would then hang for good if there is room for one
// answer only, or if no goroutine reads the answers.
func (w *memberConn) Write(b []byte) (int, error) {
	if w.greeted.Load() && len(b) > lengthBytes {
		if r, ok := zkwire.ParseRequest(b[lengthBytes:]); ok && r.Op == zkwire.Close {
			w.closeXid.Store(r.Xid)
		}
	}
	if _, err := w.Conn.Write(b); err != nil {
		w.Conn.Close()
	}
	return len(b), nil
}

func (w *memberConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.scanFrames(b[:n])
	if err != nil && !w.greeted.Load() {
		w.failed(err)
	}
	return n, err
}

// lengthBytes is the size of the length that precedes each frame.
const lengthBytes = 4

// The position of the zxid in the frame of a reply.
const (
	zxidBegin = lengthBytes + 4
	zxidEnd   = zxidBegin + 8
)

// scanFrames parses the bytes that were read before the library sees them.
func (w *memberConn) scanFrames(b []byte) {
	for len(b) > 0 {
		want := lengthBytes
		if w.frameRead >= lengthBytes {
			want += w.frameLength
		}
		n := min(len(b), want-w.frameRead)
		if w.frameRead < len(w.frameHead) {
			copy(w.frameHead[w.frameRead:], b[:n])
		}
		if w.hideZxids && w.greeted.Load() {
			clear(b[min(max(zxidBegin-w.frameRead, 0), n):min(max(zxidEnd-w.frameRead, 0), n)])
		}
		w.frameRead += n
		b = b[n:]
		if w.frameRead == lengthBytes {
			w.frameLength = int(max(0, int32(binary.BigEndian.Uint32(w.frameHead[:])))) // the library rejects negative lengths
		}
		if w.frameRead >= lengthBytes && w.frameRead == lengthBytes+w.frameLength {
			w.onFrame(w.frameHead[lengthBytes:min(w.frameRead, len(w.frameHead))])
			w.frameRead, w.frameLength = 0, 0
		}
	}
}

// onFrame evaluates the first bytes of a frame that has arrived completely.
func (w *memberConn) onFrame(b []byte) {
	if !w.greeted.Load() {
		if g, ok := zkwire.ParseGrant(b); ok {
			w.granted(g)
		}
		w.greeted.Store(true)
		_ = w.Conn.SetDeadline(time.Time{})
		return
	}
	r, ok := zkwire.ParseReply(b)
	if !ok {
		return
	}
	if r.Zxid > w.zxid.Load() {
		w.zxid.Store(r.Zxid)
	}
	if r.Xid != 0 && r.Xid == w.closeXid.Load() && r.Code == 0 {
		w.closed.Store(true)
	}
}
