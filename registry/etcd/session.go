package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// session is a lease, and a key that lives with it: conditions can ask for keys only.
type session struct {
	*remote.Session
	client *Client
	lease  int64
}

// OpenSession is described in registry.Registry. etcd counts TTLs in whole seconds and
// grants no less than one and a half of its election timeouts.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", remote.Unavailable(err))
	}
	defer end()
	ttl := o.TTL
	if ttl <= 0 {
		ttl = registry.DefaultSessionTTL
	}
	s, err := c.begin(ctx, ttl)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", remote.Unavailable(err))
	}
	return s, nil
}

// begin begins a session. What it has made when it fails, expires.
func (c *Client) begin(ctx context.Context, ttl time.Duration) (*session, error) {
	lease, sent, granted, err := c.grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	if err := c.putNode(ctx, lease); err != nil {
		return nil, err
	}
	// If replies are late, the first renewal comes too late to wait for a stream as well.
	if l, err := c.links.get(ctx); err == nil {
		_ = l.openRenewals(ctx) // else renew does
	}
	s := &session{client: c, lease: lease}
	s.Session = remote.NewSession(remote.SessionConfig{
		ID:     sessionID(lease),
		TTL:    granted,
		Opened: sent,

		// Answers that take half a TTL come 3/4 of it after the last confirmed renewal was sent:
		// a busy machine may add to that.
		Interval: granted / 4,
		Patience: granted / 20 * 17, // more than two renewals have gone unanswered by then
		// What is left of the TTL allows for clocks that run at different rates.
		Span: granted / 10 * 9,

		Renew:  func(ctx context.Context) error { return c.renew(ctx, lease, granted) },
		End:    func(ctx context.Context) error { return c.revoke(ctx, lease) },
		Calls:  c.calls,
		Logger: c.log,
	})
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%w: it took longer than the TTL lasts (%v)", registry.ErrUnavailable, err)
	}
	if !c.adopt(s) {
		return nil, errors.Join(remote.ErrHandleClosed, s.Close(ctx))
	}
	return s, nil
}

// grant makes a lease, and returns the TTL it has and when it was asked for.
//
// Each attempt is about a lease of its own: the request of one that was not answered may
// arrive when the session has come and gone, and would bring its id back to life. What it
// makes has no keys and expires.
func (c *Client) grant(ctx context.Context, ttl time.Duration) (lease int64, sent remote.Instant, granted time.Duration, err error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	var resp *pb.LeaseGrantResponse
	err = c.ask(ctx, func(ctx context.Context, l *link) (err error) {
		lease, sent = newLease(), remote.Now()
		resp, err = l.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: lease, TTL: seconds}, callOptions...)
		return err
	})
	return lease, sent, time.Duration(resp.GetTTL()) * time.Second, err
}

// newLease draws the id of a lease. That it is random, and not the server's next, keeps it
// from being used again when a store is restored from a backup.
func newLease() int64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails
		if id := int64(binary.BigEndian.Uint64(b[:]) >> 1); id > 0 {
			return id
		}
	}
}

// putNode makes the key that lives with the lease. It may be made twice.
func (c *Client) putNode(ctx context.Context, lease int64) error {
	node := []byte(c.node(sessionID(lease)))
	create := &pb.TxnRequest{
		Compare: compares([]need{{key: string(node), rule: ruleAbsent}}),
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: node, Value: remote.Encode(registry.NewTxnID(), nil), Lease: lease,
		}}}},
	}
	err := c.ask(ctx, func(ctx context.Context, l *link) error {
		_, err := l.kv.Txn(ctx, create, callOptions...)
		return err
	})
	if errors.Is(err, registry.ErrSessionLost) {
		return fmt.Errorf("%w: the lease ended before it was used", registry.ErrUnavailable)
	}
	return err
}

// revoke ends a lease, and the keys it has, if it has not ended.
func (c *Client) revoke(ctx context.Context, lease int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout) // not of c.calls: it is for Close, too
	defer cancel()
	err := c.ask(ctx, func(ctx context.Context, l *link) error {
		_, err := l.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease}, callOptions...)
		return err
	})
	if errors.Is(err, registry.ErrSessionLost) {
		return nil
	}
	return err
}

// adopt makes Close close s. It reports false if Close came first.
func (c *Client) adopt(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	for old := range c.sessions {
		if old.Err() != nil {
			delete(c.sessions, old)
		}
	}
	c.sessions[s] = struct{}{}
	return true
}

// opened returns the sessions that may live.
func (c *Client) opened() []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.sessions))
}

func closeSessions(ctx context.Context, all map[*session]struct{}) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for s := range all {
		wg.Go(func() {
			err := s.Close(ctx)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
