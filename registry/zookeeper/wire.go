package zookeeper

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
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
	granted func(grant) // called by the reader, before the library sees the greeting
	failed  func(error) // called when there is none

	zxid     atomic.Int64 // the highest in a reply: what is asked next is answered no older
	closeXid atomic.Int32 // of the request to end the session; 0 if there was none
	closed   atomic.Bool  // that was confirmed

	// The reader's:
	size int      // of the frame that is being read
	have int      // bytes of it, with the four of its size
	head [44]byte // the first of them
}

// grant is what a server says when a session is opened or found again. A session that has
// ended has the id 0.
type grant struct {
	session  int64
	password [16]byte
	timeout  time.Duration
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

// Operations, as numbered by the protocol.
const opCloseSession = -11

// Write is called with one whole request at a time.
func (w *wire) Write(b []byte) (int, error) {
	const xid, op = 4, 8
	if w.greeted.Load() && len(b) >= 12 && int32(binary.BigEndian.Uint32(b[op:])) == opCloseSession {
		w.closeXid.Store(int32(binary.BigEndian.Uint32(b[xid:])))
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.follow(b[:n])
	if err != nil && !w.greeted.Load() {
		w.failed(err)
	}
	return n, err
}

// follow takes in what was read.
func (w *wire) follow(b []byte) {
	for len(b) > 0 {
		want := 4 // the size
		if w.have >= 4 {
			want = 4 + w.size
		}
		n := min(len(b), want-w.have)
		if w.have < len(w.head) {
			copy(w.head[w.have:], b[:n])
		}
		w.have += n
		b = b[n:]
		if w.have == 4 {
			w.size = int(int32(binary.BigEndian.Uint32(w.head[:])))
			if w.size < 0 { // the library will give up
				w.size = 0
			}
		}
		if w.have >= 4 && w.have == 4+w.size {
			w.frame(w.head[4:min(w.have, len(w.head))])
			w.have, w.size = 0, 0
		}
	}
}

// frame takes in the beginning of a frame that has come whole.
func (w *wire) frame(b []byte) {
	if !w.greeted.Load() {
		if len(b) >= 36 { // protocol version, timeout, session, length of the password, password
			g := grant{
				session: int64(binary.BigEndian.Uint64(b[8:])),
				timeout: time.Duration(int32(binary.BigEndian.Uint32(b[4:]))) * time.Millisecond,
			}
			copy(g.password[:], b[20:36])
			w.granted(g)
		}
		w.greeted.Store(true)
		_ = w.Conn.SetDeadline(time.Time{})
		return
	}
	if len(b) < 16 {
		return
	}
	xid, zxid, code := int32(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:])), binary.BigEndian.Uint32(b[12:])
	if zxid > w.zxid.Load() {
		w.zxid.Store(zxid)
	}
	if xid != 0 && xid == w.closeXid.Load() && code == 0 {
		w.closed.Store(true)
	}
}
