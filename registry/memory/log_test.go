package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLog(t *testing.T) {
	bubble(t, "it contains all transactions and sessions, in order", func(t *testing.T, s *memory.Server) {
		a, b := connect(t, s, "a"), connect(t, s, "b")
		create(t, a, "before", "")
		require.Empty(t, s.Log(), "recording is off")
		s.Record()
		begin := time.Now()

		x := open(t, a, ttl)
		value := []byte("1")
		t1 := registry.Txn{
			ID:   registry.NewTxnID(),
			If:   []registry.Cond{registry.Alive(x.ID())},
			Then: []registry.Op{registry.CreateOwned("d/~o", value, x.ID())},
		}
		rev, err := b.Txn(t.Context(), t1)
		require.NoError(t, err)
		value[0], t1.If[0], t1.Then[0] = '2', registry.Absent("d/~o"), registry.Create("other", nil)
		time.Sleep(time.Second)
		_, err = b.Txn(t.Context(), t1)
		require.ErrorIs(t, err, registry.ErrConflict)
		t1.Then = nil
		_, err = b.Txn(t.Context(), t1)
		require.ErrorIs(t, err, registry.ErrConflict)
		_, err = b.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At("d/~o", rev)}})
		require.NoError(t, err)
		require.NoError(t, x.Close(t.Context()))
		_, err = b.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("d/~o", nil, x.ID())}})
		require.ErrorIs(t, err, registry.ErrSessionLost)

		log := s.Log()
		require.Len(t, log, 7)
		require.Empty(t, s.Log(), "drained")

		require.Equal(t, memory.Commit{Rev: log[0].Rev, At: begin, Client: "a", Opened: x.ID()}, log[0])
		require.Equal(t, rev, log[1].Rev)
		require.Equal(t, "b", log[1].Client)
		require.Equal(t, t1.ID, log[1].Txn)
		require.Equal(t, []registry.Cond{registry.Alive(x.ID())}, log[1].If)
		require.Equal(t, []registry.Op{registry.CreateOwned("d/~o", []byte("1"), x.ID())}, log[1].Then)
		require.NoError(t, log[1].Err)
		require.Equal(t, rev, log[2].Rev, "a refused transaction has the Rev of the last commit")
		require.Equal(t, begin.Add(time.Second), log[2].At)
		var conflict *registry.ConflictError
		require.ErrorAs(t, log[2].Err, &conflict)
		require.Zero(t, conflict.Index)
		require.NoError(t, log[4].Err)
		require.Equal(t, memory.Commit{
			Rev: log[5].Rev, At: log[5].At, Client: "a", Ended: x.ID(), Gone: []registry.Key{"d/~o"},
		}, log[5])
		require.ErrorIs(t, log[6].Err, registry.ErrSessionLost)

		var changed []bool
		for i, c := range log {
			changed = append(changed, c.Changed())
			if i > 0 {
				require.Equal(t, c.Changed(), c.Rev.Seq == log[i-1].Rev.Seq+1)
			}
		}
		require.Equal(t, []bool{true, true, false, false, false, true, false}, changed)
	})
	bubble(t, "Dump returns all stored entries", func(t *testing.T, s *memory.Server) {
		a := connect(t, s, "a")
		x := open(t, a, ttl)
		rev := apply(t, a, registry.Create("b/k", []byte("1")), registry.CreateOwned("a/~o", nil, x.ID()))
		s.Partition("a")
		resume := s.Pause()
		all := s.Dump()
		resume()
		require.Len(t, all, 2)
		require.Equal(t, registry.Key("a/~o"), all[0].Key)
		require.Equal(t, x.ID(), all[0].Owner)
		require.Equal(t, rev, all[1].Created)
		require.Equal(t, "1", string(all[1].Value))
	})
}
