package zkwire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxFrame is the largest frame that a client accepts. The reply to a list of 100,000 keys with names
// of the greatest length is smaller.
const MaxFrame = 16 << 20

// ErrMalformed reports bytes that no ZooKeeper server sends.
var ErrMalformed = errors.New("not ZooKeeper's protocol")

// More operations, whose replies CheckReply knows.
const (
	Delete      Op = 2
	Exists      Op = 3
	GetData     Op = 4
	GetACL      Op = 6
	GetChildren Op = 12
)

// The client library trusts the lengths and numbers in a reply: it allocates what they claim, or panics
// in a goroutine of its own, where nothing recovers. Each frame is therefore checked before the library
// reads it.

// CheckLength checks the length that precedes a frame.
func CheckLength(n uint32) error {
	if n > MaxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", ErrMalformed, n)
	}
	return nil
}

// CheckGreeting checks the frame of a server's greeting. A grant without a session reports that the session
// has ended; it may have no timeout.
func CheckGreeting(frame []byte) error {
	g, ok := ParseGrant(frame)
	switch {
	case !ok || len(frame) > 2*grantBytes || binary.BigEndian.Uint32(frame[16:]) != uint32(len(g.Password)):
		return fmt.Errorf("%w: a greeting of %d bytes", ErrMalformed, len(frame))
	case g.Session != 0 && g.Timeout <= 0:
		return fmt.Errorf("%w: a session timeout of %v", ErrMalformed, g.Timeout)
	}
	return nil
}

// CheckReply checks the frame of a reply. op returns the operation of the request with an xid, and false
// if no such request is pending.
func CheckReply(frame []byte, op func(xid int32) (Op, bool)) error {
	r, ok := ParseReply(frame)
	if !ok {
		return fmt.Errorf("%w: a reply of %d bytes", ErrMalformed, len(frame))
	}
	body := body{rest: frame[16:]}
	const event = -1
	if r.Xid == event {
		body.skip(8) // its type and a state
		body.bytes() // the path
	} else if op, ok := op(r.Xid); ok && r.Code == 0 {
		body.reply(op)
	}
	if body.short {
		return fmt.Errorf("%w: a reply of %d bytes is shorter than it claims", ErrMalformed, len(frame))
	}
	return nil
}

// body is the part of a reply that has not been checked.
type body struct {
	rest  []byte
	short bool // it ended too early
}

const statBytes = 68

func (b *body) reply(op Op) {
	switch op {
	case Create, Sync:
		b.bytes()
	case Exists, SetData:
		b.skip(statBytes)
	case GetData:
		b.bytes()
		b.skip(statBytes)
	case GetChildren:
		b.list(b.bytes)
		b.skip(statBytes)
	case GetACL:
		b.list(func() {
			b.skip(4)
			b.bytes()
			b.bytes()
		})
		b.skip(statBytes)
	case Multi:
		b.multi()
	}
}

// multi checks the results of a transaction, which end with a header that is marked as the last.
func (b *body) multi() {
	const failed Op = -1
	for !b.short {
		head := b.skip(9)
		if b.short || head[4] != 0 {
			return
		}
		switch op := Op(int32(binary.BigEndian.Uint32(head))); op {
		case failed:
			b.skip(4)
		case Check, Delete:
		case Create, SetData:
			b.reply(op)
		default: // the library stops here
			return
		}
	}
}

// skip returns the next n bytes, or nil if there are fewer.
func (b *body) skip(n int) []byte {
	if b.short || n > len(b.rest) {
		b.short = true
		return nil
	}
	next := b.rest[:n]
	b.rest = b.rest[n:]
	return next
}

// bytes skips a text or a value. A negative length is that of none.
func (b *body) bytes() {
	if head := b.skip(4); !b.short {
		b.skip(max(0, int(int32(binary.BigEndian.Uint32(head)))))
	}
}

// list skips a list. Each of its elements has four bytes at least.
func (b *body) list(element func()) {
	head := b.skip(4)
	if b.short {
		return
	}
	n := binary.BigEndian.Uint32(head)
	if uint64(n) > uint64(len(b.rest)/4) {
		b.short = true
		return
	}
	for range n {
		if element(); b.short {
			return
		}
	}
}
