package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// silentRenewal is the part of the TTL after which an unanswered renewal makes the handle
// look for a member that answers. By then, half of the TTL has passed since the last renewal
// that was confirmed was sent; what is left has to do for a new connection.
func silentRenewal(ttl time.Duration) time.Duration { return ttl / 4 }

// renew prolongs a lease, if the answer is nil. It asks once.
func (c *Client) renew(ctx context.Context, lease int64, ttl time.Duration) error {
	l, err := c.links.get(ctx)
	if err != nil {
		return err
	}
	over := l.begin(silentRenewal(ttl))
	left, err := l.renew(ctx, lease)
	err = translate(err)
	over(err)
	switch {
	case err != nil:
		return remote.Ended(ctx, err)
	case left <= 0:
		return fmt.Errorf("renew: %w", registry.ErrSessionLost)
	}
	return nil
}

// renewals is the stream on which all leases of a link are renewed. It is one, and it is
// kept: opening a stream costs a check of the password, if there is one, and a renewal that
// came after it would be late. Answers come in the order of the questions.
type renewals struct {
	turn   chan struct{} // one slot, taken by who opens the stream or sends on it
	stream *renewalStream
}

type renewalStream struct {
	stream grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	end    context.CancelFunc

	mu      sync.Mutex
	err     error // why the stream has ended
	waiting []renewal
}

// renewal is a question that was sent.
type renewal struct {
	lease  int64
	answer chan renewed // one slot
}

type renewed struct {
	left int64 // of the TTL: nothing if there is no such lease
	err  error
}

// renew returns what is left of the TTL: nothing if there is no such lease.
func (l *link) renew(ctx context.Context, lease int64) (left int64, err error) {
	answer, err := l.askToRenew(ctx, lease)
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

func (l *link) askToRenew(ctx context.Context, lease int64) (<-chan renewed, error) {
	if err := l.renewals.begin(ctx); err != nil {
		return nil, err
	}
	defer l.renewals.end()
	if err := l.prepareRenewals(ctx); err != nil {
		return nil, err
	}
	return l.renewals.stream.ask(ctx, lease)
}

// openRenewals opens the stream, if it is not open.
func (l *link) openRenewals(ctx context.Context) error {
	if err := l.renewals.begin(ctx); err != nil {
		return err
	}
	defer l.renewals.end()
	return l.prepareRenewals(ctx)
}

// begin waits for the caller's turn.
func (r *renewals) begin(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *renewals) end() { <-r.turn }

// prepareRenewals is openRenewals in the caller's turn.
func (l *link) prepareRenewals(ctx context.Context) error {
	if !l.renewals.stream.ended() {
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
	defer context.AfterFunc(ctx, end)() // the stream outlives ctx, but its opening does not
	stream, err := l.lease.LeaseKeepAlive(streamCtx, callOptions...)
	if err != nil {
		end()
		return nil, err
	}
	s := &renewalStream{stream: stream, end: end}
	if !l.spawn(s.listen) {
		end()
		return nil, remote.ErrHandleClosed
	}
	return s, nil
}

func (s *renewalStream) ended() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// ask sends a question, in the caller's turn.
func (s *renewalStream) ask(ctx context.Context, lease int64) (<-chan renewed, error) {
	answer := make(chan renewed, 1)
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.waiting = append(s.waiting, renewal{lease, answer})
	s.mu.Unlock()
	defer context.AfterFunc(ctx, s.end)() // a stream that takes nothing more is of no use
	// An error is the end of the stream, of which listen hears more.
	_ = s.stream.Send(&pb.LeaseKeepAliveRequest{ID: lease})
	return answer, nil
}

// listen hands out answers until the stream ends.
func (s *renewalStream) listen() {
	defer s.end()
	for {
		resp, err := s.stream.Recv()
		if err == nil {
			err = s.answer(resp)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *renewalStream) answer(resp *pb.LeaseKeepAliveResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.waiting[0].lease != resp.ID {
		return fmt.Errorf("an answer about lease %x, of which nothing was asked", resp.ID)
	}
	s.waiting[0].answer <- renewed{left: resp.TTL}
	s.waiting = s.waiting[1:]
	return nil
}

func (s *renewalStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	for _, r := range s.waiting {
		r.answer <- renewed{err: err}
	}
	s.waiting = nil
}
