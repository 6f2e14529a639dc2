package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// compactLoop compacts the store's history once per CompactEvery. All handles with that option
// share one key, and the first handle to write it in a turn does the work of that turn. A turn
// compacts up to the revision of the turn before, so history stays available for at least one
// turn.
func (c *Client) compactLoop() {
	ctx := c.handle.Context()
	var last int64 // revision of the last known turn, whichever handle claimed it
	for backend.Sleep(ctx, backend.Jittered(c.options.CompactEvery)) {
		turn, mine, err := c.claimTurn(ctx, last)
		if err == nil && mine && last > 0 {
			err = c.compactTo(ctx, last)
		}
		if err != nil && ctx.Err() == nil {
			c.log.LogAttrs(ctx, slog.LevelWarn, "compaction failed", errorAttr(err))
		}
		if turn > 0 {
			last = turn
		}
	}
}

// claimTurn claims the turn after last, unless another handle was first. turn is the revision
// of the claimed turn, mine whether this handle claimed it.
func (c *Client) claimTurn(ctx context.Context, last int64) (turn int64, mine bool, err error) {
	ctx, end, err := c.handle.Begin(ctx)
	if err != nil {
		return 0, false, err
	}
	defer end()
	key := c.namespace + compactionKey
	still := precondition{key: key, rule: ruleAt, rev: last}
	if last == 0 {
		still.rule = ruleAbsent
	}
	resp, err := c.sendTxn(ctx, &pb.TxnRequest{
		Compare: allCompares([]precondition{still}),
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
			Key: []byte(key), Value: backend.EncodeValue(registry.NewTxnID(), nil),
		}}}},
		Failure: diagnosticReads([]precondition{still}),
	})
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("claim the turn: %w", err)
	case resp.Succeeded:
		return resp.Header.Revision, true, nil
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		turn = kv.ModRevision
	}
	return turn, false, nil
}

// compactTo removes the history before a revision.
func (c *Client) compactTo(ctx context.Context, revision int64) error {
	ctx, end, err := c.handle.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = c.callWithRetry(ctx, func(ctx context.Context, l *link) error {
		_, err := l.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision}, callOptions...)
		return err
	})
	if err == nil || errors.Is(err, rpctypes.ErrCompacted) { // another client of the cluster compacts as well
		return nil
	}
	if errors.Is(err, registry.ErrPermission) {
		err = fmt.Errorf("%w (etcd permits it to users with the role root only; unset CompactEvery and use etcd's --auto-compaction-mode)", err)
	}
	return fmt.Errorf("compact up to %d: %w", revision, err)
}
