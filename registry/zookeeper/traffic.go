package zookeeper

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/zkwire"
)

// memberConn is a network connection to a member, as the client library uses it. It parses the
// traffic for facts that the library does not expose: the granted session, the zxid of each
// reply, and the confirmation that the session has ended. It passes only whole frames that are
// well formed: the library would allocate what a false length claims, or panic.
type memberConn struct {
	net.Conn
	// greetingTimeout bounds the server's answer to the greeting. Without it, a server that
	// accepts connections and never answers would hold the library up for nearly seven session
	// timeouts.
	greetingTimeout time.Duration
	greeted         atomic.Bool
	granted         func(zkwire.Grant) // called by the reader before the library sees the greeting
	failed          func(error)        // called if there is no proper answer to the greeting
	malformed       func(error)        // called if a later frame is malformed
	// hideZxids clears the zxids of replies before the library sees them. The library stores
	// the last one without a lock, and reads it from another goroutine if there are watches
	// when it connects.
	hideZxids bool
	// forgetZxid clears the zxid in the greeting, which a server compares with its own.
	forgetZxid bool

	namedZxid atomic.Bool  // the greeting had a zxid
	zxid      atomic.Int64 // highest in a reply; later replies are at least as new
	closeXid  atomic.Int32 // of the request to end the session; 0 before
	closed    atomic.Bool  // the server has confirmed that request

	mu      sync.Mutex
	pending map[int32]zkwire.Op // requests without a reply, by xid

	// Only for the reader:
	in    *bufio.Reader // nil before the first read
	frame bytes.Buffer  // what the library has not read of the current frame, its length included
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
	switch {
	case !w.greeted.Load():
		b = w.adjustGreeting(b)
	case len(b) > lengthBytes:
		if r, ok := zkwire.ParseRequest(b[lengthBytes:]); ok {
			w.setPending(r)
			if r.Op == zkwire.Close {
				w.closeXid.Store(r.Xid)
			}
		}
	}
	if _, err := w.Conn.Write(b); err != nil {
		w.Conn.Close()
	}
	return len(b), nil
}

// adjustGreeting returns the client's greeting, without the zxid if it is to be forgotten.
func (w *memberConn) adjustGreeting(b []byte) []byte {
	if len(b) < greetingZxidEnd {
		return b
	}
	b = bytes.Clone(b)
	zxid := b[greetingZxidBegin:greetingZxidEnd]
	if w.forgetZxid {
		clear(zxid)
	}
	w.namedZxid.Store(binary.BigEndian.Uint64(zxid) != 0)
	return b
}

func (w *memberConn) setPending(r zkwire.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		w.pending = make(map[int32]zkwire.Op)
	}
	w.pending[r.Xid] = r.Op
}

// takePending returns the operation of a request and forgets it.
func (w *memberConn) takePending(xid int32) (op zkwire.Op, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	op, ok = w.pending[xid]
	delete(w.pending, xid)
	return op, ok
}

func (w *memberConn) Read(b []byte) (int, error) {
	if w.frame.Len() == 0 {
		if err := w.readFrame(); err != nil {
			w.frame.Reset()
			switch {
			case !w.greeted.Load():
				w.failed(err)
			case errors.Is(err, zkwire.ErrMalformed):
				w.malformed(err)
			}
			return 0, err
		}
	}
	return w.frame.Read(b)
}

// lengthBytes is the size of the length that precedes each frame.
const lengthBytes = 4

// The position of the zxid in the frame of a reply.
const (
	zxidBegin = lengthBytes + 4
	zxidEnd   = zxidBegin + 8
)

// The position of the zxid in the frame of the client's greeting, after the version.
const (
	greetingZxidBegin = lengthBytes + 4
	greetingZxidEnd   = greetingZxidBegin + 8
)

// keptFrame is the size up to which the buffer of a frame is kept for the next one.
const keptFrame = 64 << 10

// readFrame reads and evaluates a whole frame. The buffer grows as bytes arrive, so that a false
// length costs nothing.
func (w *memberConn) readFrame() error {
	if w.in == nil {
		w.in = bufio.NewReader(w.Conn)
	}
	if w.frame.Cap() > keptFrame {
		w.frame = bytes.Buffer{}
	}
	if _, err := io.CopyN(&w.frame, w.in, lengthBytes); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(w.frame.Bytes())
	if err := zkwire.CheckLength(n); err != nil {
		return err
	}
	if _, err := io.CopyN(&w.frame, w.in, int64(n)); err != nil {
		return err
	}
	return w.onFrame(w.frame.Bytes()[lengthBytes:])
}

// onFrame evaluates a frame before the library sees it.
func (w *memberConn) onFrame(b []byte) error {
	if !w.greeted.Load() {
		if err := zkwire.CheckGreeting(b); err != nil {
			return err
		}
		g, _ := zkwire.ParseGrant(b)
		w.granted(g)
		w.greeted.Store(true)
		return w.Conn.SetDeadline(time.Time{})
	}
	if err := zkwire.CheckReply(b, w.takePending); err != nil {
		return err
	}
	r, _ := zkwire.ParseReply(b)
	if r.Zxid > w.zxid.Load() {
		w.zxid.Store(r.Zxid)
	}
	if r.Xid != 0 && r.Xid == w.closeXid.Load() && r.Code == 0 {
		w.closed.Store(true)
	}
	if w.hideZxids {
		clear(b[zxidBegin-lengthBytes : zxidEnd-lengthBytes])
	}
	return nil
}
