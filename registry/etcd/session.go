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

// session is a lease and a key attached to it. The key is needed because etcd's conditions can
// test keys but not leases.
type openSession struct {
	*remote.Session
	client *Client
	lease  int64
}

// OpenSession implements registry.Registry. etcd counts TTLs in whole seconds and grants at
// least one and a half of its election timeouts.
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
	s, err := c.beginSession(ctx, ttl)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", remote.Unavailable(err))
	}
	return s, nil
}

// beginSession creates a session. If it fails half way, the lease expires by itself.
func (c *Client) beginSession(ctx context.Context, ttl time.Duration) (*openSession, error) {
	lease, sent, granted, err := c.grantLease(ctx, ttl)
	if err != nil {
		return nil, err
	}
	if err := c.putSessionKey(ctx, lease); err != nil {
		return nil, err
	}
	// Open the stream now: if replies are slow, the first renewal has no time left to wait for
	// it.
	if l, err := c.links.waitForLink(ctx); err == nil {
		_ = l.openRenewals(ctx) // if this fails, the renewal tries again
	}
	s := &openSession{client: c, lease: lease}
	s.Session = remote.NewSession(remote.SessionConfig{
		ID:     sessionID(lease),
		TTL:    granted,
		Opened: sent,

		// With answers that take half a TTL, a renewal is confirmed 3/4 of the TTL after the
		// previous one was sent. The rest is a margin for a busy machine.
		Interval: granted / 4,
		Patience: granted / 20 * 17, // more than two renewals are unanswered by then
		// The remaining tenth allows for clocks that run at different rates.
		Span: granted / 10 * 9,

		Renew:  func(ctx context.Context) error { return c.renewSession(ctx, lease, granted) },
		End:    func(ctx context.Context) error { return c.revokeLease(ctx, lease) },
		Calls:  c.calls,
		Logger: c.log,
	})
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%w: opening took longer than the TTL (%v)", registry.ErrUnavailable, err)
	}
	if !c.addSession(s) {
		return nil, errors.Join(remote.ErrHandleClosed, s.Close(ctx))
	}
	return s, nil
}

// grantLease creates a lease and returns its TTL and the instant at which it was requested.
//
// Each attempt requests another lease ID. The request of an unanswered attempt may arrive after
// the session has ended, and would bring the ID of the session back to life. As it is, it
// creates a lease without keys, which expires.
func (c *Client) grantLease(ctx context.Context, ttl time.Duration) (lease int64, sent remote.Instant, granted time.Duration, err error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	var resp *pb.LeaseGrantResponse
	err = c.callWithRetry(ctx, func(ctx context.Context, l *link) (err error) {
		lease, sent = newLease(), remote.Now()
		resp, err = l.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: lease, TTL: seconds}, callOptions...)
		return err
	})
	return lease, sent, time.Duration(resp.GetTTL()) * time.Second, err
}

// newLease returns a random lease ID. An ID that the server chose could be used again after the
// store was restored from a backup.
func newLease() int64 {
	var b [8]byte
	for {
		rand.Read(b[:]) // never fails
		if id := int64(binary.BigEndian.Uint64(b[:]) >> 1); id > 0 {
			return id
		}
	}
}

// putSessionKey creates the key that is attached to the lease. It is idempotent.
func (c *Client) putSessionKey(ctx context.Context, lease int64) error {
	node := []byte(c.sessionKey(sessionID(lease)))
	create := &pb.TxnRequest{
		Compare: allCompares([]precondition{{key: string(node), rule: ruleAbsent}}),
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: node, Value: remote.Encode(registry.NewTxnID(), nil), Lease: lease,
		}}}},
	}
	err := c.callWithRetry(ctx, func(ctx context.Context, l *link) error {
		_, err := l.kv.Txn(ctx, create, callOptions...)
		return err
	})
	if errors.Is(err, registry.ErrSessionLost) {
		return fmt.Errorf("%w: the lease expired before it was used", registry.ErrUnavailable)
	}
	return err
}

// revokeLease ends a lease and deletes its keys. A lease that has ended already is no error.
func (c *Client) revokeLease(ctx context.Context, lease int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout) // c.calls would end it at once when Close revokes the leases
	defer cancel()
	err := c.callWithRetry(ctx, func(ctx context.Context, l *link) error {
		_, err := l.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease}, callOptions...)
		return err
	})
	if errors.Is(err, registry.ErrSessionLost) {
		return nil
	}
	return err
}

// addSession makes s one of the sessions that Close closes. It reports false if Close came
// first.
func (c *Client) addSession(s *openSession) bool {
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

// openSessions returns the sessions that may still be alive.
func (c *Client) openSessions() []*openSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.sessions))
}

func closeSessions(ctx context.Context, all map[*openSession]struct{}) error {
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
