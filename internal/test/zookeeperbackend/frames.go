package zookeeperbackend

import (
	"bytes"
	"encoding/binary"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/zkwire"
)

// parser recognizes the frames of a connection between a machine and a member.
type parser struct {
	store   *store
	greeted [2]bool // by direction
	session bool    // the connection carries a session of the registry
}

const lengthBytes = 4

// Parse implements tcpproxy.Parser. The ID of a frame is its xid.
func (p *parser) Parse(d tcpproxy.Direction, b []byte) (n int, f tcpproxy.Frame, err error) {
	if len(b) < lengthBytes {
		return 0, f, nil
	}
	n = lengthBytes + int(binary.BigEndian.Uint32(b))
	if len(b) < n {
		return 0, f, nil
	}
	frame := b[lengthBytes:n]
	switch {
	case !p.greeted[d]:
		p.greeted[d] = true
		if g, ok := zkwire.ParseGrant(frame); ok && d == tcpproxy.ToClient {
			p.store.recordGrant(g)
		}
	case d == tcpproxy.ToServer:
		f = p.parseRequest(frame)
	default:
		if r, ok := zkwire.ParseReply(frame); ok {
			f.ID = uint64(r.Xid)
		}
	}
	return n, f, nil
}

func (p *parser) parseRequest(frame []byte) (f tcpproxy.Frame) {
	r, ok := zkwire.ParseRequest(frame)
	if !ok {
		return f
	}
	f.ID = uint64(r.Xid)
	switch r.Op {
	case zkwire.Create:
		p.session = p.session || bytes.Contains(frame, []byte(p.store.namespace+"/:sessions/"))
	case zkwire.Sync, zkwire.Ping:
		if p.session {
			f.Kind = tcpproxy.Renewal
		}
	case zkwire.Multi:
		if p.isUserTxn(frame[8:]) {
			f.Kind = tcpproxy.Transaction
		}
	}
	return f
}

// isUserTxn reports whether a multi is a transaction of a handle's user. Internal multis
// begin with a check of the namespace's root.
func (p *parser) isUserTxn(multi []byte) bool {
	root := p.store.namespace
	header := binary.BigEndian.AppendUint32(nil, uint32(zkwire.Check))
	header = append(header, 0)                                        // done: false
	header = binary.BigEndian.AppendUint32(header, 0xffffffff)        // error: none
	header = binary.BigEndian.AppendUint32(header, uint32(len(root))) // length of the path
	header = append(header, root...)
	return !bytes.HasPrefix(multi, header)
}
