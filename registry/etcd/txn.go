package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Txn implements registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	return c.handle.Txn(ctx, t, c.commitTxn)
}

func (c *Client) commitTxn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	needs := c.preconditions(t)
	request := &pb.TxnRequest{Compare: allCompares(needs), Success: c.writeRequests(t)}
	if len(t.Then) == 0 {
		// A transaction without any request is answered by a member from its own state, which may
		// lag. With reads that have to be linearizable it is not.
		request.Failure = diagnosticReads(needs)
	}
	for {
		resp, err := c.sendTxn(ctx, request)
		switch {
		case errors.Is(err, registry.ErrQuota):
			return c.resolveQuotaError(ctx, t, needs, err)
		case err != nil:
			return registry.Rev{}, err
		case resp.Succeeded:
			return revOf(resp.Header.Revision), nil
		case len(t.Then) == 0:
			return registry.Rev{}, refusalError(t, needs, resp.Responses)
		}
		if err := c.explainRefusal(ctx, t, needs); err != nil {
			return registry.Rev{}, err
		}
	}
}

// explainRefusal finds out which precondition of a refused transaction does not hold, by a read of
// its own: in the transaction itself the reads would add a third to the bytes of each request. It
// returns nil if all hold by now, so that the transaction is to be sent again.
func (c *Client) explainRefusal(ctx context.Context, t registry.Txn, needs []precondition) error {
	read := &pb.TxnRequest{Compare: allCompares(needs), Failure: diagnosticReads(needs)}
	var found *pb.TxnResponse
	err := c.callWithRetry(ctx, func(ctx context.Context, l *link) (err error) {
		found, err = l.kv.Txn(ctx, read, callOptions...)
		return err
	})
	switch {
	case err != nil:
		return backend.NotApplied(backend.CallError(ctx, err))
	case found.Succeeded:
		return nil
	}
	return refusalError(t, needs, found.Responses)
}

// resolveQuotaError finds out whether t was applied although a server reported that it has no
// space. A server checks the space twice: before it proposes a transaction and when it applies
// it. If other writers filled it in between, the server applies the transaction and still
// reports the quota error. From then on it rejects all writes that need space, so each key that
// t puts holds either the value of t or the one from before it.
func (c *Client) resolveQuotaError(ctx context.Context, t registry.Txn, needs []precondition, full error) (registry.Rev, error) {
	var puts []*pb.RequestOp
	for i := range t.Then {
		if o := &t.Then[i]; o.Kind != registry.OpDelete {
			puts = append(puts, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
				RequestRange: &pb.RangeRequest{Key: []byte(c.storedKey(o.Key))},
			}})
		}
	}
	found, err := c.sendTxn(ctx, &pb.TxnRequest{Compare: allCompares(needs), Success: puts, Failure: puts})
	if err != nil {
		return registry.Rev{}, backend.Unknown(errors.Join(full, err))
	}
	for _, r := range found.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if id, _, err := backend.DecodeValue(registry.Key(kv.Key), kv.Value); err == nil && id == t.ID {
				return revOf(kv.ModRevision), nil
			}
		}
	}
	if !found.Succeeded { // another writer has changed a key since, so its value at the time is not known
		return registry.Rev{}, backend.Unknown(full)
	}
	return registry.Rev{}, full
}

// sendTxn makes the servers process r at most once: it repeats an attempt only if r was not sent
// or was rejected unread. The error states whether r may have been applied.
func (c *Client) sendTxn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	for pause := backend.NextPause(0); ; pause = backend.NextPause(pause) {
		l, err := c.links.waitForLink(ctx)
		if err != nil {
			return nil, backend.NotApplied(err)
		}
		resp, sent, err := l.sendTxn(ctx, r)
		if err == nil {
			return resp, nil
		}
		switch {
		case sent && !refused(err):
			return nil, backend.Unknown(backend.CallError(ctx, err))
		case sent && !rejectedUnread(err):
			return nil, backend.NotApplied(err)
		case !backend.Sleep(ctx, pause): // not sent or rejected unread: send it again
			return nil, backend.NotApplied(backend.CallError(ctx, err))
		}
	}
}

// sendTxn sends r and reports whether it may have left this process.
func (l *link) sendTxn(ctx context.Context, r *pb.TxnRequest) (resp *pb.TxnResponse, sent bool, err error) {
	ctx, d := withDelivery(clientv3.WithRequireLeader(ctx))
	over := l.beginCall(silenceTimeout)
	resp, err = l.kv.Txn(ctx, r, callOptions...)
	err = translate(err)
	over(err)
	return resp, d.begun.Load(), err
}
