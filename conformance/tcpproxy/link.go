package tcpproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkSize = 32 << 10
	// queueLen is the number of chunks read ahead of a fault. Beyond that the sender blocks,
	// as with a full TCP window.
	queueLen = 64
)

// link is a client connection with its connection to the server.
type link struct {
	proxy  *Proxy
	ctx    context.Context // ends with the link
	end    context.CancelFunc
	client *net.TCPConn
	filter Filter // or nil
	queues [2]chan chunk

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
	dead   bool
	// by direction: the sender closed while its bytes were held
	givenUp [2]bool
	losing  *loss // the next reply is to be lost
}

// chunk is the result of one read: bytes or the final error.
type chunk struct {
	data []byte
	err  error
	at   time.Time
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	k := &link{proxy: p, client: client}
	k.ctx, k.end = context.WithCancel(p.ctx)
	for d := range k.queues {
		k.queues[d] = make(chan chunk, queueLen)
	}
	return k
}

// forwardBoth forwards until both directions have ended.
func (k *link) forwardBoth() {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer k.reportLoss()
	defer k.resetBoth()
	wg.Go(func() { k.enqueueFrom(ToServer, k.client) })
	if !k.connect() {
		return
	}
	wg.Go(func() { k.enqueueFrom(ToClient, k.server) })
	var ways sync.WaitGroup
	ways.Go(func() { k.dequeueTo(ToServer, k.server) })
	ways.Go(func() { k.dequeueTo(ToClient, k.client) })
	ways.Wait()
}

// connect connects to the server once its direction is open: a black hole also swallows
// the first packet of a connection.
func (k *link) connect() bool {
	if !k.proxy.awaitPassage(k.ctx, ToServer, time.Now()) || k.hasGivenUp(ToServer) {
		return false
	}
	conn, err := k.dial()
	if err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = conn.(*net.TCPConn)
	if k.dead {
		resetConn(k.server)
	}
	return !k.dead
}

func (k *link) dial() (net.Conn, error) {
	upstream, err := k.proxy.route(k.client.RemoteAddr(), k.client.LocalAddr())
	if err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(k.proxy.getPatience())
	for {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(k.ctx, "tcp", upstream)
		if err == nil || time.Now().After(giveUp) || !sleepUnlessDone(k.ctx, dialPause) {
			return conn, err
		}
	}
}

func (k *link) enqueueFrom(d Direction, from *net.TCPConn) {
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		if n > 0 && !k.enqueue(d, chunk{data: bytes.Clone(buf[:n]), at: time.Now()}) {
			return
		}
		if err != nil {
			if k.proxy.isHeld(d) {
				k.giveUp(d)
			}
			k.enqueue(d, chunk{err: err, at: time.Now()})
			return
		}
	}
}

func (k *link) enqueue(d Direction, c chunk) bool {
	select {
	case k.queues[d] <- c:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// dequeueTo forwards the queued chunks, and the end of the stream, as the faults permit.
func (k *link) dequeueTo(d Direction, to *net.TCPConn) {
	for {
		var c chunk
		select {
		case c = <-k.queues[d]:
		case <-k.ctx.Done():
			return
		}
		if !k.proxy.awaitPassage(k.ctx, d, c.at) {
			return
		}
		if k.hasGivenUp(d) {
			resetConn(to)
			return
		}
		if c.err != nil {
			if errors.Is(c.err, io.EOF) {
				_ = to.CloseWrite()
			} else {
				resetConn(to)
			}
			return
		}
		if err := k.forward(d, to, c.data); err != nil {
			if errors.Is(err, errCut) {
				k.resetBoth()
			}
			return
		}
	}
}

// errCut makes the caller cut the connection.
var errCut = errors.New("cut")

func (k *link) forward(d Direction, to *net.TCPConn, b []byte) error {
	if k.filter != nil {
		passed, err := k.filter(k.ctx, d, b)
		if err != nil {
			return errCut
		}
		b = passed
	}
	if len(b) == 0 {
		return nil
	}
	if d == ToServer {
		k.assignLoss()
	} else if k.isLosing() {
		return errCut
	}
	for len(b) > 0 {
		n, pause := k.proxy.nextPortion(d, len(b))
		if pause > 0 && !sleepUnlessDone(k.ctx, pause) {
			return k.ctx.Err()
		}
		k.proxy.traffic[d].Add(int64(n)) // counted before the peer can receive it
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (k *link) giveUp(d Direction) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.givenUp[d] = true
}

func (k *link) hasGivenUp(d Direction) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.givenUp[d]
}

// resetBoth resets both connections. Bytes in transit are lost.
func (k *link) resetBoth() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = true
	k.end()
	resetConn(k.client)
	if k.server != nil {
		resetConn(k.server)
	}
}

// resetConn closes a connection with a reset, so that the peer gets an error and not an
// end of file.
func resetConn(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// sleepUnlessDone waits for d and reports false if ctx ended first.
func sleepUnlessDone(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
