package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/rota-dev/rota/internal/driver"
	"github.com/rota-dev/rota/registry"
)

// renewals are the streams on which leases are renewed. All sessions share one as long as
// answers come before the next renewal is due: a stream that waits for an answer is left
// to wait, and the next renewal takes a new one, perhaps to another member. Streams are
// kept because each one that is opened costs a check of the password, if there is one.
type renewals struct {
	mu   sync.Mutex
	idle *renewal // or nil
}

// renewal is a stream that answers one request at a time.
type renewal struct {
	stream grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	end    context.CancelFunc
}

func (r *renewals) take() *renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.idle
	r.idle = nil
	return s
}

func (r *renewals) keep(s *renewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle != nil {
		s.end()
		return
	}
	r.idle = s
}

// silentRenewal is the part of the TTL that a renewal waits for an answer, while nothing
// at all is heard, until the handle tries another member. Answers that take half a TTL are
// to be waited for; the rest has to do for a new connection.
func silentRenewal(ttl time.Duration) time.Duration { return ttl / 5 * 3 }

// renew prolongs a lease. It asks once, but for a stream that was found broken.
func (c *Client) renew(ctx context.Context, lease int64, ttl time.Duration) error {
	l, err := c.links.get(ctx)
	if err != nil {
		return err
	}
	made := time.Now()
	defer time.AfterFunc(silentRenewal(ttl), func() {
		if l.silentSince(made) {
			l.leave(errSilent)
		}
	}).Stop()
	left, err := l.renew(ctx, lease)
	switch {
	case err != nil:
		err = translate(err)
		l.judge(made, err)
		return driver.Ended(ctx, err)
	case left <= 0:
		return fmt.Errorf("renew: %w", registry.ErrSessionLost)
	}
	return nil
}

// renew returns what is left of the TTL: nothing if there is no such lease.
func (l *link) renew(ctx context.Context, lease int64) (left int64, err error) {
	if s := l.renewals.take(); s != nil {
		if left, err = l.renewOn(ctx, s, lease); err == nil {
			return left, nil
		}
	}
	s, err := l.openRenewal(ctx)
	if err != nil {
		return 0, err
	}
	return l.renewOn(ctx, s, lease)
}

func (l *link) openRenewal(ctx context.Context) (*renewal, error) {
	streamCtx, end := context.WithCancel(clientv3.WithRequireLeader(l.ctx))
	defer context.AfterFunc(ctx, end)() // the stream outlives ctx, but its opening does not
	stream, err := l.lease.LeaseKeepAlive(streamCtx, callOptions...)
	if err != nil {
		end()
		return nil, err
	}
	return &renewal{stream, end}, nil
}

// renewOn asks on s, which it keeps for the next one or ends.
func (l *link) renewOn(ctx context.Context, s *renewal, lease int64) (left int64, err error) {
	stop := context.AfterFunc(ctx, s.end)
	defer func() {
		if stop() && err == nil {
			l.renewals.keep(s)
		} else {
			s.end()
		}
	}()
	if err := s.stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
		_, err = s.stream.Recv() // tells why
		return 0, err
	}
	resp, err := s.stream.Recv()
	if err != nil {
		return 0, err
	}
	if resp.ID != lease {
		return 0, fmt.Errorf("renew %x: the answer is about %x", lease, resp.ID)
	}
	return resp.TTL, nil
}
