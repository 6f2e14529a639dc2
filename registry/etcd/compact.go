package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// compact makes the store forget its history, a turn every CompactEvery. Of all handles
// that do, one takes each turn: the first to write the key that they share. A turn forgets
// what was history when the turn before it was taken.
func (c *Client) compact() {
	ctx := c.calls.Context()
	var last int64 // the revision of the last turn that is known of, whoever took it
	for remote.Sleep(ctx, remote.Jittered(c.options.CompactEvery)) {
		turn, mine, err := c.takeTurn(ctx, last)
		if err == nil && mine && last > 0 {
			err = c.forget(ctx, last)
		}
		if err != nil && ctx.Err() == nil {
			c.log.LogAttrs(ctx, slog.LevelWarn, "compaction failed", cause(err))
		}
		if turn > 0 {
			last = turn
		}
	}
}

// takeTurn takes the turn after last, unless another handle has. It returns the turn that
// was taken.
func (c *Client) takeTurn(ctx context.Context, last int64) (turn int64, mine bool, err error) {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return 0, false, err
	}
	defer end()
	key := c.namespace + compactionKey
	still := need{key: key, rule: ruleAt, rev: last}
	if last == 0 {
		still.rule = ruleAbsent
	}
	resp, err := c.commit(ctx, &pb.TxnRequest{
		Compare: compares([]need{still}),
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: []byte(key), Value: remote.Encode(registry.NewTxnID(), nil),
		}}}},
		Failure: looks([]need{still}),
	})
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("take the turn: %w", err)
	case resp.Succeeded:
		return resp.Header.Revision, true, nil
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		turn = kv.ModRevision
	}
	return turn, false, nil
}

// forget makes the store forget what was before a revision.
func (c *Client) forget(ctx context.Context, revision int64) error {
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = c.ask(ctx, func(ctx context.Context, l *link) error {
		_, err := l.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision}, callOptions...)
		return err
	})
	if err == nil || errors.Is(err, rpctypes.ErrCompacted) { // it may be another's doing
		return nil
	}
	return fmt.Errorf("compact up to %d: %w", revision, err)
}
