package postgresbackend

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"

	"github.com/rota-dev/rota/conformance/tcpproxy"
)

// parser recognizes the messages of a connection. A request is what ends with Sync; requests are answered in order, each by a ReadyForQuery.
type parser struct {
	started  bool // the message without a type has passed
	requests atomic.Uint64
	answers  atomic.Uint64
	isTxn    bool // of the request that is being parsed
}

func newParser() tcpproxy.Parser { return &parser{} }

const (
	headerLen = 5 // type and length

	typeParse         = 'P'
	typeSync          = 'S'
	typeReadyForQuery = 'Z'
)

// commitCall is part of the statement of a transaction.
var commitCall = []byte(".commit($1")

// Parse implements tcpproxy.Parser.
func (p *parser) Parse(d tcpproxy.Direction, b []byte) (n int, f tcpproxy.Frame, err error) {
	if d == tcpproxy.ToServer && !p.started {
		if len(b) < 4 || len(b) < int(binary.BigEndian.Uint32(b)) {
			return 0, f, nil
		}
		p.started = true
		p.requests.Add(1) // the server is ready after it too
		return int(binary.BigEndian.Uint32(b)), f, nil
	}
	if len(b) < headerLen {
		return 0, f, nil
	}
	n = 1 + int(binary.BigEndian.Uint32(b[1:]))
	if len(b) < n {
		return 0, f, nil
	}
	if d == tcpproxy.ToClient {
		f.ID = p.answers.Load() + 1
		if b[0] == typeReadyForQuery {
			p.answers.Add(1)
		}
		return n, f, nil
	}
	f.ID = p.requests.Load() + 1
	if b[0] == typeParse && bytes.Contains(b[:n], commitCall) {
		f.Kind = tcpproxy.Transaction
		p.isTxn = true
	}
	if p.isTxn {
		f.Data, f.More = b[:n], b[0] != typeSync
	}
	if b[0] == typeSync {
		p.isTxn = false
		p.requests.Add(1)
	}
	return n, f, nil
}
