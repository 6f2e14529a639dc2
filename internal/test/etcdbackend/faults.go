package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/rota-dev/rota/internal/test/tcpproxy"
)

// faults are the orders for the next transactions of a machine. They act on the wire: the
// connection breaks at a certain byte, and the client with its library has to handle
// that.
type faults struct {
	mu     sync.Mutex
	orders []*order
}

type faultKind int

const (
	loseRequest faultKind = iota // the request is lost
	loseReply                    // the reply is lost
	holdRequest                  // the request arrives when it is released
)

type order struct {
	kind faultKind

	mu   sync.Mutex
	late *pb.TxnRequest // the held request
}

func (f *faults) arm(k faultKind) *order {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := &order{kind: k}
	f.orders = append(f.orders, o)
	return o
}

// held is an order to hold a request.
type held struct {
	faults *faults
	order  *order
}

func (f *faults) armHold() held { return held{f, f.arm(holdRequest)} }

// cancelOrTake returns the held request. If no request has arrived, it cancels the order.
func (h held) cancelOrTake() *pb.TxnRequest {
	h.faults.mu.Lock()
	h.faults.orders = slices.DeleteFunc(h.faults.orders, func(o *order) bool { return o == h.order })
	h.faults.mu.Unlock()
	h.order.mu.Lock()
	defer h.order.mu.Unlock()
	return h.order.late
}

// nextOrder removes and returns the order for the next transaction, or nil.
func (f *faults) nextOrder() *order {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.orders) == 0 {
		return nil
	}
	o := f.orders[0]
	f.orders = f.orders[1:]
	return o
}

// errCarriedOut makes the proxy cut the connection.
var errCarriedOut = errors.New("connection cut by a fault control")

// newFilter returns the filter of a new connection.
func (f *faults) newFilter() tcpproxy.Filter {
	w := &wire{faults: f}
	requests, replies := newFrames(true), newFrames(false)
	return func(_ context.Context, d tcpproxy.Direction, b []byte) ([]byte, error) {
		if d == tcpproxy.ToServer {
			if err := requests.feed(b, w.onRequest); err != nil {
				return nil, err
			}
			return w.passedOn(b), nil
		}
		return b, replies.feed(b, w.onReply)
	}
}

// wire applies orders to a connection.
type wire struct {
	faults *faults

	mu     sync.Mutex
	stream uint32 // stream of the transaction with the order
	order  *order // nil if none
	body   []byte // received part of a held request
}

// passedOn returns the bytes of b to forward: none while a request is held.
func (w *wire) passedOn(b []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order != nil && w.order.kind == holdRequest {
		return nil
	}
	return b
}

const transaction = "/etcdserverpb.KV/Txn"

func (w *wire) onRequest(f frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.path == transaction && w.order == nil {
		if w.order = w.faults.nextOrder(); w.order != nil {
			w.stream = f.stream
		}
	}
	switch {
	case w.order == nil || f.stream != w.stream:
	case w.order.kind == loseRequest:
		return errCarriedOut
	case w.order.kind == holdRequest:
		w.body = append(w.body, f.data...)
		if f.last {
			return w.keepHeldRequest()
		}
	}
	return nil
}

// keepHeldRequest stores a completely received request.
func (w *wire) keepHeldRequest() error {
	const prefix = 5 // of a gRPC message: compression flag and length
	var late pb.TxnRequest
	if err := proto.Unmarshal(w.body[prefix:], &late); err != nil {
		return err
	}
	w.order.mu.Lock()
	defer w.order.mu.Unlock()
	w.order.late = &late
	return errCarriedOut
}

func (w *wire) onReply(f frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order != nil && w.order.kind == loseReply && f.stream == w.stream {
		return errCarriedOut
	}
	return nil
}
