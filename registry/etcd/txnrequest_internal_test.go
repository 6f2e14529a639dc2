package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

const aLease = "00000000000000ab"

func TestPreconditions(t *testing.T) {
	c := &Client{namespace: "/n"}
	rev := registry.Rev{Seq: 5}
	const absent, present, never = "is absent", "is present", "never holds"
	at5 := "is at 5"
	type need struct {
		item    int
		key     string
		rule    string
		session bool
	}
	for name, c2 := range map[string]struct {
		txn  registry.Txn
		want []need
	}{
		"Absent": {registry.Txn{If: []registry.Cond{registry.Absent("d/k")}}, []need{{0, "/n/d//k", absent, false}}},
		"At":     {registry.Txn{If: []registry.Cond{registry.At("k", rev)}}, []need{{0, "/n//k", at5, false}}},
		"At a Rev that etcd cannot issue": {
			registry.Txn{If: []registry.Cond{
				registry.At("k", registry.Rev{}), registry.At("k", registry.Rev{Seq: 5, Aux: 1}), registry.At("k", registry.Rev{Seq: 1 << 63}),
			}},
			[]need{{0, "/n//k", never, false}, {1, "/n//k", never, false}, {2, "/n//k", never, false}},
		},
		"Alive and Dead": {
			registry.Txn{If: []registry.Cond{registry.Alive(aLease), registry.Dead(aLease)}},
			[]need{{0, "/n/:sessions/" + aLease, present, false}, {1, "/n/:sessions/" + aLease, absent, false}},
		},
		"Create, Set and Delete": {
			registry.Txn{Then: []registry.Op{registry.Create("a", nil), registry.Set("b", rev, nil), registry.Delete("c", rev)}},
			[]need{{0, "/n//a", absent, false}, {1, "/n//b", at5, false}, {2, "/n//c", at5, false}},
		},
		"CreateOwned needs the session, then the absence": {
			registry.Txn{If: []registry.Cond{registry.Absent("k")}, Then: []registry.Op{registry.CreateOwned("~k", nil, aLease)}},
			[]need{{0, "/n//k", absent, false}, {1, "/n/:sessions/" + aLease, present, true}, {1, "/n//~k", absent, false}},
		},
		"CreateOwned of an ID that no session has": {
			registry.Txn{Then: []registry.Op{registry.CreateOwned("~k", nil, "ab")}},
			[]need{{0, "/n/:sessions/ab", never, true}, {0, "/n//~k", absent, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			needs := c.preconditions(c2.txn)
			var got []need
			for i := range needs {
				got = append(got, need{needs[i].item, needs[i].key, judgeCompare(t, needs[i]), needs[i].session})
			}
			require.Equal(t, c2.want, got)
			reads := diagnosticReads(needs)
			require.Len(t, reads, len(needs))
			for i, r := range reads {
				require.Equal(t, needs[i].key, string(r.GetRequestRange().Key))
				require.True(t, r.GetRequestRange().KeysOnly)
				require.Empty(t, r.GetRequestRange().RangeEnd)
			}
		})
	}
}

// judgeCompare names the states of a key in which etcd's comparison holds, and requires that
// holds agrees.
func judgeCompare(t *testing.T, n precondition) string {
	t.Helper()
	all := allCompares([]precondition{n})
	require.Len(t, all, 1)
	require.Equal(t, n.key, string(all[0].Key))
	var held [3]bool
	for i, kv := range []*mvccpb.KeyValue{nil, {CreateRevision: 4, ModRevision: 5}, {CreateRevision: 5, ModRevision: 6}} {
		held[i] = compareHolds(t, all[0], kv)
		require.Equal(t, held[i], n.holds(kv), "%v", kv)
	}
	words := map[[3]bool]string{{true, false, false}: "is absent", {false, true, true}: "is present", {false, true, false}: "is at 5", {}: "never holds"}
	require.Contains(t, words, held)
	return words[held]
}

// compareHolds evaluates a comparison as etcd does: the revisions of a missing key are 0.
func compareHolds(t *testing.T, c *pb.Compare, kv *mvccpb.KeyValue) bool {
	t.Helper()
	if kv == nil {
		kv = &mvccpb.KeyValue{}
	}
	var actual, wanted int64
	switch c.Target {
	case pb.Compare_CREATE:
		actual, wanted = kv.CreateRevision, c.GetCreateRevision()
	case pb.Compare_MOD:
		actual, wanted = kv.ModRevision, c.GetModRevision()
	default:
		t.Fatalf("compares %v", c.Target)
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return actual == wanted
	case pb.Compare_GREATER:
		return actual > wanted
	case pb.Compare_LESS:
		return actual < wanted
	}
	t.Fatalf("compares by %v", c.Result)
	return false
}

func TestWriteRequests(t *testing.T) {
	c := &Client{namespace: "/n"}
	id, rev := registry.TxnID{1}, registry.Rev{Seq: 5}
	all := c.writeRequests(registry.Txn{ID: id, Then: []registry.Op{
		registry.Create("d/k", []byte("v")), registry.CreateOwned("~k", []byte("v"), aLease),
		registry.Set("k", rev, []byte("v")), registry.Set("~k", rev, []byte("v")), registry.Delete("k", rev),
	}})
	value := backend.EncodeValue(id, []byte("v"))
	for i, want := range []*pb.PutRequest{
		{Key: []byte("/n/d//k"), Value: value},
		{Key: []byte("/n//~k"), Value: value, Lease: 0xab},
		{Key: []byte("/n//k"), Value: value},
		{Key: []byte("/n//~k"), Value: value, IgnoreLease: true},
	} {
		require.Equal(t, want.String(), all[i].GetRequestPut().String())
	}
	require.Equal(t, (&pb.DeleteRangeRequest{Key: []byte("/n//k")}).String(), all[4].GetRequestDeleteRange().String())
	require.Len(t, all, 5)
}

func TestRefusalError(t *testing.T) {
	c := &Client{namespace: "/n"}
	txn := registry.Txn{
		If:   []registry.Cond{registry.Absent("a"), registry.At("b", registry.Rev{Seq: 5})},
		Then: []registry.Op{registry.CreateOwned("~k", nil, aLease), registry.Create("e", nil)},
	}
	needs := c.preconditions(txn)
	found := func(held ...bool) []*pb.ResponseOp { // whether there is a key, by precondition
		var all []*pb.ResponseOp
		for _, there := range held {
			r := &pb.RangeResponse{}
			if there {
				r.Kvs = []*mvccpb.KeyValue{{CreateRevision: 4, ModRevision: 5}}
			}
			all = append(all, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}})
		}
		return all
	}
	for name, x := range map[string]struct {
		found    []*pb.ResponseOp
		conflict int
		means    error
	}{
		"names the first item":                          {found(true, false, false, true, true), 0, registry.ErrConflict},
		"names a later item if the earlier ones hold":   {found(false, false, true, true, true), 1, registry.ErrConflict},
		"names the session before the key it would own": {found(false, true, false, true, true), -1, registry.ErrSessionLost},
		"names the owned key":                           {found(false, true, true, true, true), 2, registry.ErrConflict},
		"names the last item":                           {found(false, true, true, false, true), 3, registry.ErrConflict},
		"is not applied if all hold":                    {found(false, true, true, false, false), -1, registry.ErrNotApplied},
	} {
		t.Run(name, func(t *testing.T) {
			err := refusalError(txn, needs, x.found)
			require.ErrorIs(t, err, x.means)
			var conflict *registry.ConflictError
			if x.means == registry.ErrConflict {
				require.ErrorAs(t, err, &conflict)
				require.Equal(t, x.conflict, conflict.Index)
			}
			if x.means == registry.ErrSessionLost {
				require.ErrorContains(t, err, "~k")
			}
		})
	}
}
