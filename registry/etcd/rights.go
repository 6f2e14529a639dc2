package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
)

// probe reads something that takes a leader, a quorum and the right to do it.
func (c *Client) probe(ctx context.Context, l *link) error {
	all := c.namespace + "/"
	_, err := l.kv.Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{
		Key: []byte(all), RangeEnd: after(all), Limit: 1, KeysOnly: true,
	}, callOptions...)
	return c.missing("read", translate(err))
}

// checkWrite fails if the user may not write. etcd judges both branches of a transaction
// before it evaluates the conditions, so a transaction whose condition never holds asks for
// the right and changes nothing.
//
// The branch deletes single keys that do not exist. A delete needs the right to write, as a
// put does, but no room, so the check passes on a full store; and one of the whole range
// would be a risk without need. The keys lie at both ends of the namespace and in the
// directory of the sessions: a user with rights to a part of the namespace fails at one of
// them.
func (c *Client) checkWrite(ctx context.Context) error {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	never := need{key: c.namespace + "/", rule: ruleNever}
	check := &pb.TxnRequest{Compare: compares([]need{never})}
	for _, key := range []string{"/", sessionsDir, "/~~"} {
		check.Success = append(check.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(c.namespace + key)},
		}})
	}
	err = c.ask(ctx, func(ctx context.Context, l *link) error {
		_, err := l.kv.Txn(ctx, check, callOptions...)
		return err
	})
	return c.missing("write", err)
}

// missing names the right that the user lacks and the keys, which etcd does not.
func (c *Client) missing(right string, err error) error {
	if !errors.Is(err, registry.ErrPermission) {
		return err
	}
	return fmt.Errorf("no right to %s the keys that begin with %q: %w", right, c.namespace+"/", err)
}
