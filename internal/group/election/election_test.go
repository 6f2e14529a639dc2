package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestState_NextStep(t *testing.T) {
	rev := registry.Rev{Seq: 5}
	led := State{Leader: record.Leader{Incarnation: "a.A", Session: "A"}, LeaderRev: rev}
	vacant := led
	vacant.Successors = []string{"b.B", "c.C"}
	occupied := led
	occupied.Seat, occupied.SeatRev = "A", rev

	t.Run("the owner of the seat leads, all others follow", func(t *testing.T) {
		step, _ := occupied.NextStep("a.A", "A", 0)
		assert.Equal(t, Lead, step)
		step, _ = occupied.NextStep("b.B", "B", 0)
		assert.Equal(t, Follow, step)
	})
	t.Run("a later incarnation of the leader's instance follows", func(t *testing.T) {
		step, _ := occupied.NextStep("a.A2", "A2", 0)
		assert.Equal(t, Follow, step)
	})
	t.Run("the owner of the seat restores a missing leader record", func(t *testing.T) {
		deleted := State{LeaderRev: rev, Seat: "A", SeatRev: rev}
		for _, o := range []State{deleted, {Seat: "A", SeatRev: rev}} {
			step, wait := o.NextStep("a.A", "A", 0.5)
			assert.Equal(t, TakeSeat, step)
			assert.Zero(t, wait)
			step, _ = o.NextStep("b.B", "B", 0.5)
			assert.Equal(t, Follow, step)
		}
	})
	t.Run("a named leader accepts at once", func(t *testing.T) {
		step, wait := vacant.NextStep("a.A", "A", 0.5)
		assert.Equal(t, AcceptSeat, step)
		assert.Zero(t, wait)
	})
	t.Run("the first successor acts at once, the next later, all others after them", func(t *testing.T) {
		step, first := vacant.NextStep("b.B", "B", 0.5)
		assert.Equal(t, TakeSeat, step)
		assert.Zero(t, first)
		_, second := vacant.NextStep("c.C", "C", 0.5)
		assert.Positive(t, second)
		for _, draw := range []float64{0, 0.5, 0.999} {
			step, other := vacant.NextStep("d.D", "D", draw)
			assert.Equal(t, TakeSeat, step)
			assert.Greater(t, other, second)
			assert.Less(t, other, time.Second)
		}
	})
}

func TestState_Transactions(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	rev, seat := registry.Rev{Seq: 5}, registry.Rev{Seq: 6}
	o := State{Leader: record.Leader{Incarnation: "a.A", Session: "A"}, LeaderRev: rev, Seat: "A", SeatRev: seat}

	t.Run("succession: the previous leader is dead, the record is as observed, the new session owns the seat", func(t *testing.T) {
		txn, err := o.SuccessionTxn(keys, "b.B", "B")
		require.NoError(t, err)
		assert.Equal(t, []registry.Cond{registry.Dead("A")}, txn.If)
		require.Len(t, txn.Then, 2)
		assert.Equal(t, rev, txn.Then[0].Rev)
		assert.Equal(t, keys.Leader(), txn.Then[0].Key)
		assert.Equal(t, registry.SessionID("B"), txn.Then[1].Session)
	})
	t.Run("first election: there is no leader record", func(t *testing.T) {
		txn, err := (&State{}).SuccessionTxn(keys, "b.B", "B")
		require.NoError(t, err)
		assert.Empty(t, txn.If)
		assert.Equal(t, registry.OpCreate, txn.Then[0].Kind)
	})
	t.Run("succession under one's own seat: the seat is as observed", func(t *testing.T) {
		txn, err := (&State{LeaderRev: rev, Seat: "B", SeatRev: seat}).SuccessionTxn(keys, "b.B", "B")
		require.NoError(t, err)
		assert.Equal(t, []registry.Cond{registry.At(keys.Seat(), seat)}, txn.If)
		require.Len(t, txn.Then, 1)
		assert.Equal(t, rev, txn.Then[0].Rev)
	})
	t.Run("resignation: the successor is alive and named in the same commit", func(t *testing.T) {
		txn, err := o.ResignationTxn(keys, "b.B")
		require.NoError(t, err)
		assert.Equal(t, []registry.Cond{registry.Alive("B")}, txn.If)
		assert.Equal(t, keys.Leader(), txn.Then[0].Key)
		assert.Contains(t, string(txn.Then[0].Value), `"b.B"`)
		assert.Equal(t, registry.Delete(keys.Seat(), seat), txn.Then[1])
	})
	t.Run("acceptance: the leader record is as observed", func(t *testing.T) {
		txn, err := o.AcceptanceTxn(keys, "A")
		require.NoError(t, err)
		assert.Equal(t, []registry.Cond{registry.At(keys.Leader(), rev)}, txn.If)
	})
}
