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

// faults are what becomes of the next transactions of a machine. They are carried out on
// the wire: the connection breaks at the right byte, and all of the client, its library
// too, has to make of that what it can.
type faults struct {
	mu     sync.Mutex
	orders []*order
}

type faultKind int

const (
	loseRequest faultKind = iota // the request does not arrive
	loseReply                    // the reply does not
	holdRequest                  // the request arrives later
)

type order struct {
	kind faultKind

	mu   sync.Mutex
	late *pb.TxnRequest // what was held
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

// cancelOrTake returns the request that was held. If there was none yet, none will be.
func (h held) cancelOrTake() *pb.TxnRequest {
	h.faults.mu.Lock()
	h.faults.orders = slices.DeleteFunc(h.faults.orders, func(o *order) bool { return o == h.order })
	h.faults.mu.Unlock()
	h.order.mu.Lock()
	defer h.order.mu.Unlock()
	return h.order.late
}

// nextOrder takes the order for a transaction that has come, or nil.
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

// errCarriedOut cuts the connection.
var errCarriedOut = errors.New("an order was carried out")

// newFilter is for a connection that begins.
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

// wire carries out orders on a connection.
type wire struct {
	faults *faults

	mu     sync.Mutex
	stream uint32 // of the transaction that an order is about
	order  *order // nil while there is none
	body   []byte // of a request that is held
}

// passedOn returns what is passed on of b: nothing once a request is held.
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

// keepHeldRequest keeps a request that has come whole, for later.
func (w *wire) keepHeldRequest() error {
	const prefix = 5 // of a message of gRPC: whether it is compressed, and its length
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
