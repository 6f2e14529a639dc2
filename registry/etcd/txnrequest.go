package etcd

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

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
