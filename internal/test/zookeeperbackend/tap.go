package zookeeperbackend

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/rota-dev/rota/internal/test/tcpproxy"
	"github.com/rota-dev/rota/internal/zkwire"
)

// tap parses a connection between a machine and a member and applies the machine's orders
// to it.
type tap struct {
	machine *machine
	streams [2]stream

	mu      sync.Mutex
	session bool             // the connection carries a session of the registry
	pending map[int32]*order // orders of sent requests, by xid
}

// stream is one direction of a connection.
type stream struct {
	rest    []byte // start of an incomplete frame
	greeted bool
}

func newTap(m *machine) *tap {
	return &tap{machine: m, pending: make(map[int32]*order)}
}

var errLost = errors.New("lost by a fault control")

func (t *tap) filter(ctx context.Context, d tcpproxy.Direction, b []byte) ([]byte, error) {
	s := &t.streams[d]
	s.rest = append(s.rest, b...)
	var passed []byte
	for {
		frame, ok := s.nextFrame()
		if !ok {
			return passed, nil
		}
		pass, err := true, error(nil)
		switch {
		case !s.greeted:
			s.greeted = true
			if d == tcpproxy.ToClient {
				t.onGreeting(ctx, frame[4:])
			}
		case d == tcpproxy.ToServer:
			pass, err = t.onRequest(ctx, frame[4:])
		default:
			err = t.onReply(frame[4:])
		}
		if err != nil {
			return nil, err
		}
		if pass {
			passed = append(passed, frame...)
		}
	}
}

// nextFrame removes the next complete frame, including its length, from the received
// bytes.
func (s *stream) nextFrame() (frame []byte, ok bool) {
	if len(s.rest) < 4 {
		return nil, false
	}
	n := 4 + int(binary.BigEndian.Uint32(s.rest))
	if len(s.rest) < n {
		return nil, false
	}
	frame, s.rest = s.rest[:n:n], s.rest[n:]
	return frame, true
}

func (t *tap) onGreeting(ctx context.Context, frame []byte) {
	if g, ok := zkwire.ParseGrant(frame); ok {
		t.machine.store.recordGrant(g)
	}
	context.AfterFunc(ctx, t.endPendingOrders)
}

// endPendingOrders ends the orders that still wait for a reply.
func (t *tap) endPendingOrders() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for xid, o := range t.pending {
		delete(t.pending, xid)
		close(o.done)
	}
}

func (t *tap) onRequest(ctx context.Context, frame []byte) (pass bool, err error) {
	r, ok := zkwire.ParseRequest(frame)
	if !ok {
		return true, nil
	}
	switch r.Op {
	case zkwire.Create:
		if bytes.Contains(frame, []byte(t.machine.store.namespace+"/:sessions/")) {
			t.mu.Lock()
			t.session = true
			t.mu.Unlock()
		}
	case zkwire.Sync, zkwire.Ping:
		t.mu.Lock()
		starved := t.session
		t.mu.Unlock()
		return !starved || !t.machine.isStarved(), nil
	case zkwire.Multi:
		if t.isUserTxn(frame[8:]) {
			return true, t.applyOrder(ctx, r.Xid)
		}
	}
	return true, nil
}

// isUserTxn reports whether a multi is a transaction of a handle's user. Internal multis
// begin with a check of the namespace's root.
func (t *tap) isUserTxn(multi []byte) bool {
	root := t.machine.store.namespace
	header := binary.BigEndian.AppendUint32(nil, uint32(zkwire.Check))
	header = append(header, 0)                                        // done: false
	header = binary.BigEndian.AppendUint32(header, 0xffffffff)        // error: none
	header = binary.BigEndian.AppendUint32(header, uint32(len(root))) // length of the path
	header = append(header, root...)
	return !bytes.HasPrefix(multi, header)
}

// applyOrder applies the next order to a transaction.
func (t *tap) applyOrder(ctx context.Context, xid int32) error {
	o := t.machine.nextOrder()
	if o == nil {
		return nil
	}
	if o.fate == loseRequest {
		close(o.done)
		return errLost
	}
	t.mu.Lock()
	t.pending[xid] = o
	t.mu.Unlock()
	if ctx.Err() != nil {
		t.endPendingOrders()
		return ctx.Err()
	}
	if o.fate == holdRequest {
		select {
		case <-o.release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (t *tap) onReply(frame []byte) error {
	r, ok := zkwire.ParseReply(frame)
	if !ok {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.pending[r.Xid]
	if o == nil {
		return nil
	}
	delete(t.pending, r.Xid)
	close(o.done)
	if o.fate == loseReply {
		return errLost
	}
	return nil
}
