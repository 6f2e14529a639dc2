package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// renewalSilence is the time after which an unanswered renewal makes the handle look for a
// member that answers. Half of the TTL has then passed since the last confirmed renewal was
// sent; the other half has to suffice for a new connection.
func renewalSilence(ttl time.Duration) time.Duration { return ttl / 4 }

// renewSession renews a lease with one request. A nil error means that the lease is renewed.
func (c *Client) renewSession(ctx context.Context, lease int64, ttl time.Duration) error {
	l, err := c.links.waitForLink(ctx)
	if err != nil {
		return err
	}
	over := l.beginCall(renewalSilence(ttl))
	left, err := l.renewLease(ctx, lease)
	err = translate(err)
	over(err)
	switch {
	case err != nil:
		return backend.CallError(ctx, err)
	case left <= 0:
		return fmt.Errorf("renew: %w", registry.ErrSessionLost)
	}
	return nil
}

// renewals owns the stream on which all leases of a link are renewed. There is one stream and
// it stays open, because with a password opening a stream costs a password check, after which
// the renewal would be late. Answers arrive in the order of the requests.
type renewals struct {
	held   chan struct{} // one slot, a lock with a context: held to open the stream or to send
	stream *renewalStream
}

type renewalStream struct {
	stream grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	end    context.CancelFunc

	mu      sync.Mutex
	err     error // why the stream has ended
	pending []pendingRenewal
}

// pendingRenewal is a request that has been sent and not answered.
type pendingRenewal struct {
	lease  int64
	answer chan renewalAnswer // one slot
}

type renewalAnswer struct {
	left int64 // remaining TTL; 0 if there is no such lease
	err  error
}

// renewLease returns the remaining TTL, which is 0 if there is no such lease.
func (l *link) renewLease(ctx context.Context, lease int64) (left int64, err error) {
	answer, err := l.requestRenewal(ctx, lease)
	if err != nil {
		return 0, err
	}
	select {
	case a := <-answer:
		return a.left, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (l *link) requestRenewal(ctx context.Context, lease int64) (<-chan renewalAnswer, error) {
	if err := l.renewals.lock(ctx); err != nil {
		return nil, err
	}
	defer l.renewals.unlock()
	if err := l.openRenewalsLocked(ctx); err != nil {
		return nil, err
	}
	return l.renewals.stream.send(ctx, lease)
}

// openRenewals opens the stream unless it is open.
func (l *link) openRenewals(ctx context.Context) error {
	if err := l.renewals.lock(ctx); err != nil {
		return err
	}
	defer l.renewals.unlock()
	return l.openRenewalsLocked(ctx)
}

// lock waits for the lock until ctx ends.
func (r *renewals) lock(ctx context.Context) error {
	select {
	case r.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *renewals) unlock() { <-r.held }

// openRenewalsLocked is openRenewals for a caller that holds the lock.
func (l *link) openRenewalsLocked(ctx context.Context) error {
	if !l.renewals.stream.hasEnded() {
		return nil
	}
	s, err := l.newRenewalStream(ctx)
	if err == nil {
		l.renewals.stream = s
	}
	return err
}

func (l *link) newRenewalStream(ctx context.Context) (*renewalStream, error) {
	streamCtx, end := context.WithCancel(clientv3.WithRequireLeader(l.ctx))
	defer context.AfterFunc(ctx, end)() // ctx bounds the opening, not the life of the stream
	stream, err := l.lease.LeaseKeepAlive(streamCtx, callOptions...)
	if err != nil {
		end()
		return nil, err
	}
	s := &renewalStream{stream: stream, end: end}
	if !l.goTask(s.receiveAnswers) {
		end()
		return nil, backend.ErrHandleClosed
	}
	return s, nil
}

func (s *renewalStream) hasEnded() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// send sends a request. The caller holds the lock.
func (s *renewalStream) send(ctx context.Context, lease int64) (<-chan renewalAnswer, error) {
	answer := make(chan renewalAnswer, 1)
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.pending = append(s.pending, pendingRenewal{lease, answer})
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.end)() // a stream that blocks on Send is broken
	// A failed Send ends the stream, and receiveAnswers gets the error.
	_ = s.stream.Send(&pb.LeaseKeepAliveRequest{ID: lease})
	return answer, nil
}

// receiveAnswers delivers the answers until the stream ends.
func (s *renewalStream) receiveAnswers() {
	defer s.end()
	for {
		resp, err := s.stream.Recv()
		if err == nil {
			err = s.deliver(resp)
		}
		if err != nil {
			s.failAll(err)
			return
		}
	}
}

func (s *renewalStream) deliver(resp *pb.LeaseKeepAliveResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 || s.pending[0].lease != resp.ID {
		return fmt.Errorf("unexpected answer for lease %x", resp.ID)
	}
	s.pending[0].answer <- renewalAnswer{left: resp.TTL}
	s.pending = s.pending[1:]
	return nil
}

func (s *renewalStream) failAll(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	for _, r := range s.pending {
		r.answer <- renewalAnswer{err: err}
	}
	s.pending = nil
}
