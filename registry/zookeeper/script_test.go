package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/internal/zkwire"
)

// scriptedServer is a proxy in front of the shared server. A test makes changes between two
// requests of a client, and lets some of the connections lead to a member that is behind the
// others, as those of an ensemble may be for moments that no test can bring about.
type scriptedServer struct {
	proxy *tcpproxy.Proxy

	mu          sync.Mutex
	connections int                   // made so far
	modes       map[int]mode          // by the number of the connection, from 1
	steps       []step                // to be made in this order
	replies     map[read][]byte       // latest reply of the server to a read
	zxid        int64                 // highest in a reply
	past        map[read][]byte       // what members that are behind reply
	pastZxid    int64                 // of their state
	watched     map[int]map[read]bool // reads that a lagging connection has answered from the past
}

// mode is the state of the member behind a connection.
type mode int

const (
	upToDate mode = iota
	lagging       // answers from the past until a sync or a commit
	deposed       // answers from the past, syncs as well, and commits nothing
)

// read identifies a read of a path.
type read struct {
	op   zkwire.Op
	path string
}

// step is made once, before the next request of a kind is forwarded.
type step struct {
	op zkwire.Op
	do func()
}

const (
	getData     zkwire.Op = 4
	getChildren zkwire.Op = 12
)

func startScript(t *testing.T) *scriptedServer {
	t.Helper()
	p, err := tcpproxy.Listen(servertest.ZooKeeper(t).Addrs()[0])
	require.NoError(t, err)
	t.Cleanup(p.Close)
	s := &scriptedServer{
		proxy: p, modes: make(map[int]mode), replies: make(map[read][]byte), watched: make(map[int]map[read]bool),
	}
	p.SetFilter(s.newFilter)
	return s
}

// open opens a handle whose connections lead through the proxy. The first one is the base
// connection.
func (s *scriptedServer) open(t *testing.T, namespace string, change ...func(*Options)) *Client {
	t.Helper()
	return open(t, namespace, append(change, func(o *Options) { o.Endpoints = []string{s.proxy.Addr()} })...)
}

// before makes do run once, before the next request of a kind is forwarded. Several steps are
// made in order: each waits for the one before it.
func (s *scriptedServer) before(op zkwire.Op, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step{op, do})
}

// requireDone fails the test if a step was not made.
func (s *scriptedServer) requireDone(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.steps, "the test has not come to these steps")
}

// fallBehind makes the present state, as far as it has been read through the proxy, the one
// from which members that are behind answer.
func (s *scriptedServer) fallBehind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past, s.pastZxid = maps.Clone(s.replies), s.zxid
}

// setMode sets the state of the member behind a connection, which may be a later one.
func (s *scriptedServer) setMode(connection int, m mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modes[connection] = m
}

// made returns the number of connections made so far.
func (s *scriptedServer) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// newFilter returns the filter of a connection.
func (s *scriptedServer) newFilter() tcpproxy.Filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	c := &scriptedConn{script: s, number: s.connections, pending: make(map[int32]read)}
	return c.filter
}

// scriptedConn is a connection through the proxy. Its first frames are the greetings.
type scriptedConn struct {
	script  *scriptedServer
	number  int
	rest    [2][]byte
	greeted [2]bool
	pending map[int32]read // reads and syncs without an answer, by xid; guarded by script.mu
}

func (c *scriptedConn) filter(_ context.Context, d tcpproxy.Direction, b []byte) ([]byte, error) {
	c.rest[d] = append(c.rest[d], b...)
	var passed []byte
	for len(c.rest[d]) >= lengthBytes {
		n := lengthBytes + int(binary.BigEndian.Uint32(c.rest[d]))
		if len(c.rest[d]) < n {
			break
		}
		frame := c.rest[d][:n]
		c.rest[d] = c.rest[d][n:]
		switch {
		case !c.greeted[d]:
			c.greeted[d] = true
			passed = append(passed, frame...)
		case d == tcpproxy.ToServer:
			passed = append(passed, c.onRequest(frame)...)
		default:
			passed = append(passed, c.onReply(frame)...)
		}
	}
	return passed, nil
}

// onRequest makes the steps that are due and returns what to forward.
func (c *scriptedConn) onRequest(frame []byte) []byte {
	r, _ := zkwire.ParseRequest(frame[lengthBytes:])
	s := c.script
	s.mu.Lock()
	var due func()
	if len(s.steps) > 0 && s.steps[0].op == r.Op {
		due = s.steps[0].do
		s.steps = s.steps[1:]
	}
	s.mu.Unlock()
	if due != nil {
		due()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Op {
	case getData, getChildren:
		c.pending[r.Xid] = read{r.Op, parsePath(frame[lengthBytes+8:])}
	case zkwire.Sync:
		c.pending[r.Xid] = read{op: zkwire.Sync}
	case zkwire.Multi:
		if s.modes[c.number] == deposed {
			return nil
		}
		s.modes[c.number] = upToDate
	}
	return frame
}

// parsePath parses a string of the protocol.
func parsePath(b []byte) string { return string(b[4 : 4+binary.BigEndian.Uint32(b)]) }

// onReply returns the server's reply, or that of a member that is behind.
func (c *scriptedConn) onReply(frame []byte) []byte {
	r, ok := zkwire.ParseReply(frame[lengthBytes:])
	if !ok {
		return frame
	}
	s := c.script
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := c.pending[r.Xid]
	delete(c.pending, r.Xid)
	var events []byte
	if asked.op == zkwire.Sync && s.modes[c.number] == lagging {
		s.modes[c.number] = upToDate
		for w := range s.watched[c.number] { // its watches fire as it catches up
			events = append(events, changedEvent(w)...)
		}
		delete(s.watched, c.number)
	}
	if s.modes[c.number] != upToDate {
		return s.replyFromThePast(c.number, asked, r, frame)
	}
	s.zxid = max(s.zxid, r.Zxid)
	if asked.path != "" {
		s.replies[asked] = bytes.Clone(frame)
	}
	return append(events, frame...)
}

// replyFromThePast replaces a reply of the server by the one that a member behind it gives.
func (s *scriptedServer) replyFromThePast(connection int, asked read, r zkwire.Reply, frame []byte) []byte {
	if r.Xid == -1 {
		return nil // an event that has not reached the member
	}
	if old := s.past[asked]; old != nil {
		frame = bytes.Clone(old)
		binary.BigEndian.PutUint32(frame[lengthBytes:], uint32(r.Xid))
		if s.watched[connection] == nil {
			s.watched[connection] = make(map[read]bool)
		}
		s.watched[connection][asked] = true
	}
	binary.BigEndian.PutUint64(frame[zxidBegin:], uint64(s.pastZxid))
	return frame
}

// changedEvent returns the event of a watch that was set by a read.
func changedEvent(w read) []byte {
	const dataChanged, childrenChanged, connected = 3, 4, 3
	kind := uint32(dataChanged)
	if w.op == getChildren {
		kind = childrenChanged
	}
	b := binary.BigEndian.AppendUint32(nil, ^uint32(0)) // xid
	b = binary.BigEndian.AppendUint64(b, ^uint64(0))    // zxid
	b = binary.BigEndian.AppendUint32(b, 0)             // error
	b = binary.BigEndian.AppendUint32(b, kind)          // type
	b = binary.BigEndian.AppendUint32(b, connected)     // state
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.path)))
	b = append(b, w.path...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

var errStillBehind = errors.New("the member is behind")

// soon returns a context that ends soon, for a call that must not succeed.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errStillBehind)
	t.Cleanup(cancel)
	return ctx
}
