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

// need is something that must hold of a stored key for an item of a transaction.
type need struct {
	item int // counts t.If first, then t.Then
	key  string
	rule rule
	rev  int64 // of ruleAt
	life bool  // the key is that of the session that a CreateOwned names
}

type rule int

const (
	ruleAbsent rule = iota
	rulePresent
	ruleAt
	ruleNever // nothing is stored at a Rev that etcd does not give
)

// needs returns what must hold for t, in the order in which it is judged.
func (c *Client) needs(t registry.Txn) []need {
	needs := make([]need, 0, len(t.If)+2*len(t.Then))
	for i := range t.If {
		needs = append(needs, c.needOf(i, &t.If[i]))
	}
	for i := range t.Then {
		needs = append(needs, c.needsOf(len(t.If)+i, &t.Then[i])...)
	}
	return needs
}

func (c *Client) needOf(item int, cond *registry.Cond) need {
	switch cond.Kind {
	case registry.CondAbsent:
		return need{item: item, key: c.stored(cond.Key), rule: ruleAbsent}
	case registry.CondAt:
		return c.needAt(item, cond.Key, cond.Rev)
	case registry.CondAlive:
		return need{item: item, key: c.node(cond.Session), rule: rulePresent}
	default: // CondDead: CheckTxn lets no other pass
		return need{item: item, key: c.node(cond.Session), rule: ruleAbsent}
	}
}

func (c *Client) needsOf(item int, o *registry.Op) []need {
	switch o.Kind {
	case registry.OpSet, registry.OpDelete:
		return []need{c.needAt(item, o.Key, o.Rev)}
	case registry.OpCreate:
		return []need{{item: item, key: c.stored(o.Key), rule: ruleAbsent}}
	}
	alive := need{item: item, key: c.node(o.Session), rule: rulePresent, life: true}
	if _, ok := leaseID(o.Session); !ok {
		alive.rule = ruleNever
	}
	return []need{alive, {item: item, key: c.stored(o.Key), rule: ruleAbsent}}
}

func (c *Client) needAt(item int, key registry.Key, rev registry.Rev) need {
	n := need{item: item, key: c.stored(key), rule: ruleAt, rev: int64(rev.Seq)}
	if n.rev <= 0 || rev.Aux != 0 {
		n.rule = ruleNever
	}
	return n
}

// holds judges what was found at the key, which is nil if nothing was.
func (n *need) holds(kv *mvccpb.KeyValue) bool {
	switch n.rule {
	case ruleAbsent:
		return kv == nil
	case rulePresent:
		return kv != nil
	case ruleAt:
		return kv != nil && kv.ModRevision == n.rev
	}
	return false
}

// compare is holds for etcd to judge.
func (n *need) compare() *pb.Compare {
	created := &pb.Compare{
		Key: []byte(n.key), Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 0},
	}
	switch n.rule {
	case ruleAbsent:
		created.Result = pb.Compare_EQUAL
	case rulePresent:
		created.Result = pb.Compare_GREATER
	case ruleAt:
		return &pb.Compare{
			Key: []byte(n.key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: n.rev},
		}
	default:
		created.Result = pb.Compare_LESS
	}
	return created
}

func compares(needs []need) []*pb.Compare {
	all := make([]*pb.Compare, len(needs))
	for i := range needs {
		all[i] = needs[i].compare()
	}
	return all
}

// looks returns the reads that tell, when etcd has refused, which need did not hold. They
// are as many as the needs, which are at most two for each item: 128, which is also what
// etcd accepts by default.
func looks(needs []need) []*pb.RequestOp {
	all := make([]*pb.RequestOp, len(needs))
	for i := range needs {
		all[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
			RequestRange: &pb.RangeRequest{Key: []byte(needs[i].key), KeysOnly: true},
		}}
	}
	return all
}

// changes returns what t.Then does, given that its needs hold.
func (c *Client) changes(t registry.Txn) []*pb.RequestOp {
	all := make([]*pb.RequestOp, len(t.Then))
	for i := range t.Then {
		all[i] = c.change(&t.Then[i], t.ID)
	}
	return all
}

func (c *Client) change(o *registry.Op, id registry.TxnID) *pb.RequestOp {
	key := []byte(c.stored(o.Key))
	if o.Kind == registry.OpDelete {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: key},
		}}
	}
	put := &pb.PutRequest{Key: key, Value: remote.Encode(id, o.Value)}
	switch o.Kind {
	case registry.OpSet:
		put.IgnoreLease = true // keep it: a put without one would make an owned key permanent
	case registry.OpCreateOwned:
		put.Lease, _ = leaseID(o.Session)
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
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
