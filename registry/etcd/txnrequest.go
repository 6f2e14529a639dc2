package etcd

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// precondition is a requirement on a stored key that comes from one item of a transaction.
type precondition struct {
	item    int // index into t.If, continued by t.Then
	key     string
	rule    rule
	rev     int64 // for ruleAt
	session bool  // the key is that of the session named by a CreateOwned
}

type rule int

const (
	ruleAbsent rule = iota
	rulePresent
	ruleAt
	ruleNever // for a Rev that etcd cannot have issued
)

// preconditions returns the requirements of t in the order in which they are checked.
func (c *Client) preconditions(t registry.Txn) []precondition {
	needs := make([]precondition, 0, len(t.If)+2*len(t.Then))
	for i := range t.If {
		needs = append(needs, c.condPrecondition(i, &t.If[i]))
	}
	for i := range t.Then {
		needs = append(needs, c.opPreconditions(len(t.If)+i, &t.Then[i])...)
	}
	return needs
}

func (c *Client) condPrecondition(item int, cond *registry.Cond) precondition {
	switch cond.Kind {
	case registry.CondAbsent:
		return precondition{item: item, key: c.storedKey(cond.Key), rule: ruleAbsent}
	case registry.CondAt:
		return c.preconditionAt(item, cond.Key, cond.Rev)
	case registry.CondAlive:
		return precondition{item: item, key: c.sessionKey(cond.Session), rule: rulePresent}
	default: // CondDead; CheckTxn rejects all other kinds
		return precondition{item: item, key: c.sessionKey(cond.Session), rule: ruleAbsent}
	}
}

func (c *Client) opPreconditions(item int, o *registry.Op) []precondition {
	switch o.Kind {
	case registry.OpSet, registry.OpDelete:
		return []precondition{c.preconditionAt(item, o.Key, o.Rev)}
	case registry.OpCreate:
		return []precondition{{item: item, key: c.storedKey(o.Key), rule: ruleAbsent}}
	}
	alive := precondition{item: item, key: c.sessionKey(o.Session), rule: rulePresent, session: true}
	if _, ok := leaseID(o.Session); !ok {
		alive.rule = ruleNever
	}
	return []precondition{alive, {item: item, key: c.storedKey(o.Key), rule: ruleAbsent}}
}

func (c *Client) preconditionAt(item int, key registry.Key, rev registry.Rev) precondition {
	n := precondition{item: item, key: c.storedKey(key), rule: ruleAt, rev: int64(rev.Seq)}
	if n.rev <= 0 || rev.Aux != 0 {
		n.rule = ruleNever
	}
	return n
}

// holds reports whether kv, the key as it was found, meets the precondition. kv is nil if the
// key does not exist.
func (n *precondition) holds(kv *mvccpb.KeyValue) bool {
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

// compare returns the precondition as an etcd comparison.
func (n *precondition) compare() *pb.Compare {
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

func allCompares(needs []precondition) []*pb.Compare {
	all := make([]*pb.Compare, len(needs))
	for i := range needs {
		all[i] = needs[i].compare()
	}
	return all
}

// diagnosticReads returns reads that show, after a refusal, which precondition did not hold.
// There is one per precondition, at most Limits.TxnItems, which is etcd's default limit.
func diagnosticReads(needs []precondition) []*pb.RequestOp {
	all := make([]*pb.RequestOp, len(needs))
	for i := range needs {
		all[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
			RequestRange: &pb.RangeRequest{Key: []byte(needs[i].key), KeysOnly: true},
		}}
	}
	return all
}

// writeRequests returns the operations of t.Then as etcd requests, to be executed if the
// preconditions hold.
func (c *Client) writeRequests(t registry.Txn) []*pb.RequestOp {
	all := make([]*pb.RequestOp, len(t.Then))
	for i := range t.Then {
		all[i] = c.writeRequest(&t.Then[i], t.ID)
	}
	return all
}

func (c *Client) writeRequest(o *registry.Op, id registry.TxnID) *pb.RequestOp {
	key := []byte(c.storedKey(o.Key))
	if o.Kind == registry.OpDelete {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: key},
		}}
	}
	put := &pb.PutRequest{Key: key, Value: backend.EncodeValue(id, o.Value)}
	switch o.Kind {
	case registry.OpSet:
		put.IgnoreLease = o.Key.Owned() // a put without a lease would make an owned key permanent; to keep one costs etcd two more reads
	case registry.OpCreateOwned:
		put.Lease, _ = leaseID(o.Session)
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
}

// refusalError returns the error for the first item of t whose precondition did not hold. found
// holds the keys as they were read.
func refusalError(t registry.Txn, needs []precondition, found []*pb.ResponseOp) error {
	for i := range needs {
		n := &needs[i]
		var kv *mvccpb.KeyValue
		if kvs := found[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			kv = kvs[0]
		}
		switch {
		case n.holds(kv):
		case n.session:
			return fmt.Errorf("%w: %s", registry.ErrSessionLost, t.Then[n.item-len(t.If)])
		default:
			return registry.Conflict(t, n.item)
		}
	}
	return fmt.Errorf("%w: etcd refused a transaction whose preconditions hold", registry.ErrNotApplied)
}
