package zookeeper

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/zkwire"
)

// wire is a connection to a member, as the client library uses it. It reads along what
// the library keeps to itself: what the server granted, how far its state had come with
// each reply, and whether it confirmed the end of the session.
type wire struct {
	net.Conn
	// bound is how long the server may take to greet. Without it the library waits for
	// nearly seven times the timeout of its session on a server that accepts connections
	// and does nothing more.
	bound   time.Duration
	greeted atomic.Bool
	granted func(zkwire.Grant) // called by the reader, before the library sees the greeting
	failed  func(error)        // called when there is none
	// veiled: the library sees no zxids in replies. It stores the last one without a lock,
	// and reads it if it finds watches just after it has connected.
	veiled bool

	zxid     atomic.Int64 // the highest in a reply: what is asked next is answered no older
	closeXid atomic.Int32 // of the request to end the session; 0 if there was none
	closed   atomic.Bool  // that was confirmed

	// The reader's:
	size int                                 // of the frame that is being read
	have int                                 // bytes of it, with the four of its size
	head [frameSize + zkwire.GrantBytes]byte // the first of them
}

func (w *wire) SetReadDeadline(t time.Time) error { return w.Conn.SetReadDeadline(w.clamp(t)) }

func (w *wire) SetWriteDeadline(t time.Time) error { return w.Conn.SetWriteDeadline(w.clamp(t)) }

func (w *wire) clamp(t time.Time) time.Time {
	if w.greeted.Load() {
		return t
	}
	if most := time.Now().Add(w.bound); t.IsZero() || t.After(most) {
		return most // also when the library lifts its own bound in the midst of the greeting
	}
	return t
}

// Write is called with one whole request at a time. It never fails: it breaks the connection
// instead, which the reader hears of. The library answers a request whose Write has failed,
// and again when the connection has ended; where there is room for one answer only, or
// nobody reads them, it hangs for good.
func (w *wire) Write(b []byte) (int, error) {
	if w.greeted.Load() && len(b) > frameSize {
		if r, ok := zkwire.ParseRequest(b[frameSize:]); ok && r.Op == zkwire.Close {
			w.closeXid.Store(r.Xid)
		}
	}
	if _, err := w.Conn.Write(b); err != nil {
		w.Conn.Close()
	}
	return len(b), nil
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.follow(b[:n])
	if err != nil && !w.greeted.Load() {
		w.failed(err)
	}
	return n, err
}

// frameSize is the length of a frame's length.
const frameSize = 4

// Where in a frame the zxid of a reply is.
const (
	zxidBegin = frameSize + 4
	zxidEnd   = zxidBegin + 8
)

// follow takes in what was read, before the library sees it.
func (w *wire) follow(b []byte) {
	for len(b) > 0 {
		want := frameSize
		if w.have >= frameSize {
			want += w.size
		}
		n := min(len(b), want-w.have)
		if w.have < len(w.head) {
			copy(w.head[w.have:], b[:n])
		}
		if w.veiled && w.greeted.Load() {
			clear(b[min(max(zxidBegin-w.have, 0), n):min(max(zxidEnd-w.have, 0), n)])
		}
		w.have += n
		b = b[n:]
		if w.have == frameSize {
			w.size = int(max(0, int32(binary.BigEndian.Uint32(w.head[:])))) // the library gives up on less
		}
		if w.have >= frameSize && w.have == frameSize+w.size {
			w.frame(w.head[frameSize:min(w.have, len(w.head))])
			w.have, w.size = 0, 0
		}
	}
}

// frame takes in the beginning of a frame that has come whole.
func (w *wire) frame(b []byte) {
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
