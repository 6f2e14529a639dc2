package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// OpenSession implements registry.Registry. etcd counts TTLs in whole seconds and grants at
// least one and a half of its election timeouts.
func (c *Client) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := c.handle.OpenSession(ctx, o, c.beginSession)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// beginSession creates a session: a lease, and a key that is attached to it. The key is needed
// because etcd's conditions can test keys but not leases. If it fails half way, the lease expires
// by itself.
func (c *Client) beginSession(ctx context.Context, ttl time.Duration) (backend.Grant, error) {
	lease, sent, granted, err := c.grantLease(ctx, ttl)
	if err != nil {
		return backend.Grant{}, err
	}
	if err := c.putSessionKey(ctx, lease); err != nil {
		return backend.Grant{}, err
	}
	// Open the stream now: if replies are slow, the first renewal has no time left to wait for
	// it.
	if l, err := c.links.waitForLink(ctx); err == nil {
		_ = l.openRenewals(ctx) // if this fails, the renewal tries again
	}
	return backend.Grant{
		ID: sessionID(lease), TTL: granted, Sent: sent,
		Renew: func(ctx context.Context) error { return c.renewSession(ctx, lease, granted) },
		End:   func(ctx context.Context) error { return c.revokeLease(ctx, lease) },
	}, nil
}

// grantLease creates a lease and returns its TTL and the instant at which it was requested.
//
// Each attempt requests another lease ID. The request of an unanswered attempt may arrive after
// the session has ended, and would bring the ID of the session back to life. As it is, it
// creates a lease without keys, which expires.
func (c *Client) grantLease(ctx context.Context, ttl time.Duration) (lease int64, sent backend.Instant, granted time.Duration, err error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	var resp *pb.LeaseGrantResponse
	err = c.callWithRetry(ctx, func(ctx context.Context, l *link) (err error) {
		lease, sent = newLease(), backend.Now()
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
			Key: node, Value: backend.EncodeValue(registry.NewTxnID(), nil), Lease: lease,
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
	ctx, cancel := context.WithTimeout(ctx, c.options.CallTimeout) // c.handle.Call would end it at once when Close revokes the leases
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
