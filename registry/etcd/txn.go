package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Txn is described in registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if err := registry.CheckTxn(t, c.Limits()); err != nil {
		return registry.Rev{}, err
	}
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w", remote.NotApplied(err))
	}
	defer end()
	t.ID = t.ID.OrNew()
	needs := c.needs(t)
	resp, err := c.commit(ctx, &pb.TxnRequest{
		Compare: compares(needs),
		Success: c.changes(t),
		Failure: looks(needs),
	})
	switch {
	case errors.Is(err, registry.ErrQuota):
		return c.settleFull(ctx, t, needs, err)
	case err != nil:
		return registry.Rev{}, fmt.Errorf("commit: %w", err)
	case resp.Succeeded:
		return revOf(resp.Header.Revision), nil
	}
	return registry.Rev{}, refusal(t, needs, resp.Responses)
}

// settleFull finds out what became of t, of which a server has said that it lacks the room.
// A server looks for room twice: before it proposes a transaction, and when it applies it.
// In between others may have filled it, and then it applies the transaction all the same
// and reports only the lack. Those that come after find the server closed to what needs
// room, so what was there before t is there still, or what t has put.
func (c *Client) settleFull(ctx context.Context, t registry.Txn, needs []need, full error) (registry.Rev, error) {
	var puts []*pb.RequestOp
	for i := range t.Then {
		if o := &t.Then[i]; o.Kind != registry.OpDelete {
			puts = append(puts, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
				RequestRange: &pb.RangeRequest{Key: []byte(c.stored(o.Key))},
			}})
		}
	}
	found, err := c.commit(ctx, &pb.TxnRequest{Compare: compares(needs), Success: puts, Failure: puts})
	if err != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w", remote.Unknown(errors.Join(full, err)))
	}
	for _, r := range found.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if id, _, err := remote.Decode(registry.Key(kv.Key), kv.Value); err == nil && id == t.ID {
				return revOf(kv.ModRevision), nil
			}
		}
	}
	if !found.Succeeded { // another has changed it, and there is no telling what that was before
		return registry.Rev{}, fmt.Errorf("commit: %w", remote.Unknown(full))
	}
	return registry.Rev{}, fmt.Errorf("commit: %w", full)
}

// commit sends r, once. The error says whether it may have been applied.
func (c *Client) commit(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	for pause := pauseLow; ; pause = longer(pause) {
		l, err := c.links.get(ctx)
		if err != nil {
			return nil, remote.NotApplied(err)
		}
		resp, sent, err := l.commit(ctx, r)
		if err == nil {
			return resp, nil
		}
		switch {
		case sent && !refused(err):
			return nil, remote.Unknown(remote.Ended(ctx, err))
		case sent && !unread(err):
			return nil, remote.NotApplied(err)
		case !remote.Sleep(ctx, pause): // sending it is still to be done
			return nil, remote.NotApplied(remote.Ended(ctx, err))
		}
	}
}

// commit sends r, and reports whether it may have left this process.
func (l *link) commit(ctx context.Context, r *pb.TxnRequest) (resp *pb.TxnResponse, sent bool, err error) {
	ctx, d := withDelivery(clientv3.WithRequireLeader(ctx))
	over := l.begin(silentFor)
	resp, err = l.kv.Txn(ctx, r, callOptions...)
	err = translate(err)
	over(err)
	return resp, d.begun.Load(), err
}

// refusal is the error for the first item of t whose need did not hold, by what was found
// at the same revision.
func refusal(t registry.Txn, needs []need, found []*pb.ResponseOp) error {
	for i := range needs {
		n := &needs[i]
		var kv *mvccpb.KeyValue
		if kvs := found[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			kv = kvs[0]
		}
		switch {
		case n.holds(kv):
		case n.life:
			return fmt.Errorf("%w: %s", registry.ErrSessionLost, t.Then[n.item-len(t.If)])
		default:
			return registry.Conflict(t, n.item)
		}
	}
	return fmt.Errorf("commit: %w: etcd refuses what holds", registry.ErrNotApplied)
}
