// Package zkwire parses those parts of ZooKeeper's protocol that the client library does not
// expose: the session that a server grants and the zxid of a reply. It also ends a session from
// outside of the library.
//
// A frame is a length of four bytes followed by that many bytes. The first frame in each direction
// is a greeting. Later requests begin with a transaction ID (xid) and an operation, replies with
// the xid, the zxid of the server's state, and an error code.
package zkwire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// Op is an operation of the protocol.
type Op int32

// Operations.
const (
	Create  Op = 1
	SetData Op = 5
	Sync    Op = 9
	Ping    Op = 11
	Check   Op = 13
	Multi   Op = 14
	Close   Op = -11
)

// Grant is a server's answer to the start or the resumption of a session. Session is 0 if the
// session to be resumed has ended.
type Grant struct {
	Session  int64
	Password [16]byte
	Timeout  time.Duration
}

// grantBytes is the number of bytes of a greeting that ParseGrant reads.
const grantBytes = 36

// ParseGrant parses a server's greeting.
func ParseGrant(frame []byte) (g Grant, ok bool) {
	if len(frame) < grantBytes {
		return g, false
	}
	ms := int32(binary.BigEndian.Uint32(frame[4:])) // after the version
	g.Timeout = time.Duration(ms) * time.Millisecond
	g.Session = int64(binary.BigEndian.Uint64(frame[8:]))
	copy(g.Password[:], frame[20:]) // after its length
	return g, true
}

// Request is the beginning of a request.
type Request struct {
	Xid int32
	Op  Op
}

// ParseRequest parses the beginning of a request.
func ParseRequest(frame []byte) (r Request, ok bool) {
	if len(frame) < 8 {
		return r, false
	}
	return Request{
		Xid: int32(binary.BigEndian.Uint32(frame)),
		Op:  Op(int32(binary.BigEndian.Uint32(frame[4:]))),
	}, true
}

// Reply is the beginning of a reply. Pings and events, which answer no request, have a negative
// Xid.
type Reply struct {
	Xid  int32
	Zxid int64
	Code int32
}

// ParseReply parses the beginning of a reply.
func ParseReply(frame []byte) (r Reply, ok bool) {
	if len(frame) < 16 {
		return r, false
	}
	return Reply{
		Xid:  int32(binary.BigEndian.Uint32(frame)),
		Zxid: int64(binary.BigEndian.Uint64(frame[4:])),
		Code: int32(binary.BigEndian.Uint32(frame[12:])),
	}, true
}

// EndSession ends a session over a connection made for this purpose. It returns nil if the server
// confirms the end or does not know the session.
func EndSession(conn net.Conn, g Grant) error {
	// Both requests go out in one write, because the owner's library may resume the session next.
	if _, err := conn.Write(append(reconnectRequest(g), endRequest()...)); err != nil {
		return err
	}
	frame, err := readFrame(conn)
	if err != nil {
		return err
	}
	found, ok := ParseGrant(frame)
	if !ok {
		return fmt.Errorf("malformed greeting of %d bytes", len(frame))
	}
	if found.Session == 0 {
		return nil
	}
	for {
		if frame, err = readFrame(conn); err != nil {
			return err
		}
		if r, ok := ParseReply(frame); ok && r.Xid == endXid {
			return endError(r.Code)
		}
	}
}

// endError returns an error if code means that the session was not ended.
func endError(code int32) error {
	const done, expired = 0, -112
	if code == done || code == expired {
		return nil
	}
	return fmt.Errorf("the server returned error code %d", code) // for example, the session has moved to another member
}

// reconnectRequest returns the greeting of a client that resumes a session.
func reconnectRequest(g Grant) []byte {
	const version, lastZxid = 0, 0
	size := 4 + 8 + 4 + 8 + 4 + len(g.Password)
	b := binary.BigEndian.AppendUint32(nil, uint32(size))
	b = binary.BigEndian.AppendUint32(b, version)
	b = binary.BigEndian.AppendUint64(b, lastZxid)
	b = binary.BigEndian.AppendUint32(b, uint32(g.Timeout/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, uint64(g.Session))
	b = binary.BigEndian.AppendUint32(b, uint32(len(g.Password)))
	return append(b, g.Password[:]...)
}

const endXid = 1

func endRequest() []byte {
	op := Close
	b := binary.BigEndian.AppendUint32(nil, 8)
	b = binary.BigEndian.AppendUint32(b, endXid)
	return binary.BigEndian.AppendUint32(b, uint32(op))
}

// readFrame reads a frame. None of the frames that a server sends here is large.
func readFrame(r io.Reader) ([]byte, error) {
	const most = 1 << 20
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > most {
		return nil, fmt.Errorf("frame of %d bytes is too large", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
