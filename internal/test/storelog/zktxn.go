package storelog

import (
	"encoding/binary"
	"errors"
	"hash/adler32"
	"io"
	"slices"
	"time"
)

// The kinds of ZooKeeper transactions that are read.
const (
	zkCreate       = 1
	zkDelete       = 2
	zkSetData      = 5
	zkMulti        = 14
	zkCreate2      = 15
	zkCloseSession = -11
	zkError        = -1
)

// zkTxn is a transaction of the log.
type zkTxn struct {
	zxid    uint64
	at      time.Time // to the millisecond, by the leader's clock
	session int64     // the ZooKeeper session of the client
	parts   []zkPart
}

// failed reports whether the transaction was refused. The log holds a refused multi as well, with the entries before
// the refused one as if they had been applied.
func (t *zkTxn) failed() bool {
	return slices.ContainsFunc(t.parts, func(p zkPart) bool { return p.kind == zkError })
}

// zkPart is a change of a znode, or the end of the session.
type zkPart struct {
	kind      int32
	path      string
	data      []byte
	ephemeral bool
}

// parseTxn reads a transaction: a header, then fields that depend on its kind.
func parseTxn(b []byte) (*zkTxn, error) {
	r := &jute{b: b}
	t := &zkTxn{session: r.long()}
	r.int() // the client's request number
	t.zxid = uint64(r.long())
	t.at = time.UnixMilli(r.long())
	kind := r.int()
	if kind != zkMulti {
		t.parts = append(t.parts, parsePart(kind, r))
		return t, r.err
	}
	for range r.int() {
		kind, part := r.int(), &jute{b: r.bytes()}
		t.parts = append(t.parts, parsePart(kind, part))
		r.err = errors.Join(r.err, part.err)
	}
	return t, r.err
}

func parsePart(kind int32, r *jute) zkPart {
	p := zkPart{kind: kind}
	switch kind {
	case zkCreate, zkCreate2:
		p.kind = zkCreate
		p.path, p.data = r.text(), r.bytes()
		for range r.int() { // the ACL
			r.int()
			r.text()
			r.text()
		}
		p.ephemeral = r.bool()
	case zkDelete:
		p.path = r.text()
	case zkSetData:
		p.path, p.data = r.text(), r.bytes()
	}
	return p
}

// jute reads ZooKeeper's encoding.
type jute struct {
	b   []byte
	err error
}

func (r *jute) next(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.err, r.b = io.ErrUnexpectedEOF, nil
		return make([]byte, 8)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *jute) int() int32  { return int32(be32(r.next(4))) }
func (r *jute) long() int64 { return int64(binary.BigEndian.Uint64(r.next(8))) }
func (r *jute) bool() bool  { return r.next(1)[0] != 0 }

// bytes reads a length and that many bytes; a length of -1 means no bytes.
func (r *jute) bytes() []byte {
	n := r.int()
	if n == -1 || r.err != nil {
		return nil
	}
	b := r.next(int(n))
	if r.err != nil {
		return nil
	}
	return b
}

func (r *jute) text() string { return string(r.bytes()) }

func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

// intact reports whether a record matches its checksum.
func intact(sum, record []byte) bool {
	return binary.BigEndian.Uint64(sum) == uint64(adler32.Checksum(record))
}

// ended returns nil for the end of the file, which may grow.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
