// Package zkwire knows what of ZooKeeper's protocol the client library keeps to itself:
// what a server grants, how far its state has come, and how a session is ended by one who
// is not the library.
//
// A frame is a length of four bytes and as many bytes more. The first in each direction is
// a greeting; after that, requests begin with a number and an operation, replies with the
// number, the zxid of the server's state, and an error code.
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

// Grant is what a server says when a session is begun or found again. One that has ended
// has the id 0.
type Grant struct {
	Session  int64
	Password [16]byte
	Timeout  time.Duration
}

// GrantBytes is as much of a greeting as ParseGrant looks at.
const GrantBytes = 36

// ParseGrant reads a server's greeting.
func ParseGrant(frame []byte) (g Grant, ok bool) {
	if len(frame) < GrantBytes {
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

// ParseRequest reads the beginning of a request.
func ParseRequest(frame []byte) (r Request, ok bool) {
	if len(frame) < 8 {
		return r, false
	}
	return Request{
		Xid: int32(binary.BigEndian.Uint32(frame)),
		Op:  Op(int32(binary.BigEndian.Uint32(frame[4:]))),
	}, true
}

// Reply is the beginning of a reply. Those to nobody have a negative Xid: pings, events.
type Reply struct {
	Xid  int32
	Zxid int64
	Code int32
}

// ParseReply reads the beginning of a reply.
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

// EndSession ends a session on a connection that is made for this alone, and returns nil
// if the server says that it has ended, or knows of no such session.
func EndSession(conn net.Conn, g Grant) error {
	// Both requests at once: the owner's library may be about to take the session back.
	if _, err := conn.Write(append(greeting(g), endRequest()...)); err != nil {
		return err
	}
	frame, err := readFrame(conn)
	if err != nil {
		return err
	}
	found, ok := ParseGrant(frame)
	if !ok {
		return fmt.Errorf("a greeting of %d bytes", len(frame))
	}
	if found.Session == 0 {
		return nil
	}
	for {
		if frame, err = readFrame(conn); err != nil {
			return err
		}
		if r, ok := ParseReply(frame); ok && r.Xid == endXid {
			return refusal(r.Code)
		}
	}
}

// refusal is why a session was not ended, if it was not.
func refusal(code int32) error {
	const done, expired = 0, -112
	if code == done || code == expired {
		return nil
	}
	return fmt.Errorf("the server answers %d", code) // it has moved to another member, for one
}

// greeting is the request to go on with a session.
func greeting(g Grant) []byte {
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

// readFrame reads one of the few frames that can come here, none of which is large.
func readFrame(r io.Reader) ([]byte, error) {
	const most = 1 << 20
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > most {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
