package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
)

// checkRead makes a read that needs a leader, a quorum and the right to read the namespace.
func (c *Client) checkRead(ctx context.Context, l *link) error {
	all := c.namespace + "/"
	_, err := l.kv.Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{
		Key: []byte(all), RangeEnd: rangeEnd(all), Limit: 1, KeysOnly: true,
	}, callOptions...)
	return c.nameMissingRight("read", translate(err))
}

// checkWrite fails if the user may not write. etcd checks the rights for both branches of a
// transaction before it evaluates the conditions, so a transaction whose condition never holds
// needs the right to write and changes nothing.
//
// The branch deletes single keys that do not exist. A delete needs the same right as a put but
// no space, so the check also passes on a full store; deleting the whole range would be a
// needless risk. The keys lie at both ends of the namespace and in the directory of the
// sessions, so that a user with rights to a part of the namespace fails at one of them.
func (c *Client) checkWrite(ctx context.Context) error {
	never := precondition{key: c.namespace + "/", rule: ruleNever}
	check := &pb.TxnRequest{Compare: allCompares([]precondition{never})}
	for _, key := range []string{"/", sessionsDir, "/~~"} {
		check.Success = append(check.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(c.namespace + key)},
		}})
	}
	err := c.callWithRetry(ctx, func(ctx context.Context, l *link) error {
		_, err := l.kv.Txn(ctx, check, callOptions...)
		return err
	})
	return c.nameMissingRight("write", err)
}

// nameMissingRight adds the right and the keys that a permission error is about, which etcd
// does not name.
func (c *Client) nameMissingRight(right string, err error) error {
	if !errors.Is(err, registry.ErrPermission) {
		return err
	}
	return fmt.Errorf("no right to %s the keys that begin with %q: %w", right, c.namespace+"/", err)
}
