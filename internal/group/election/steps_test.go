package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestState_NextStep_Waits(t *testing.T) {
	const d = SuccessionDelay
	rev := registry.Rev{Seq: 5}
	led := State{Leader: record.Leader{Incarnation: "a.A", Session: "A"}, LeaderRev: rev}
	succeeded := led
	succeeded.Successors = []string{"b.B", "c.C", "d.D"}
	for name, c := range map[string]struct {
		state State
		me    string
		draw  float64
		want  time.Duration
	}{
		"the third successor waits for two":                        {succeeded, "d.D", 0.5, 2 * d},
		"others wait for all successors, and one delay more":       {succeeded, "e.E", 0, 4 * d},
		"others are spread over eight delays":                      {succeeded, "e.E", 0.5, 8 * d},
		"candidates of a new group are spread over one delay":      {State{}, "e.E", 0.5, d / 2},
		"without successors, candidates wait for one delay":        {led, "e.E", 0, d},
		"successors of a missing leader record keep their order":   {State{Successors: []string{"b.B"}}, "e.E", 0, 2 * d},
		"the first candidate of a new group acts at once":          {State{}, "e.E", 0, 0},
		"successors of a missing leader record are spread as well": {State{Successors: []string{"b.B"}}, "e.E", 0.5, 6 * d},
	} {
		t.Run(name, func(t *testing.T) {
			step, wait := c.state.NextStep(c.me, record.SessionOf(c.me), c.draw)
			assert.Equal(t, TakeSeat, step)
			assert.Equal(t, c.want, wait)
		})
	}
}

func TestState_NextStep_OldSeat(t *testing.T) {
	o := State{Leader: record.Leader{Incarnation: "b.B", Session: "B"}, LeaderRev: registry.Rev{Seq: 5}, Seat: "A", SeatRev: registry.Rev{Seq: 6}}
	step, _ := o.NextStep("a.A", "A", 0)
	assert.Equal(t, Follow, step, "the leader record names another incarnation: its seat is on the way")
	step, _ = o.NextStep("b.B", "B", 0)
	assert.Equal(t, Follow, step, "the seat has to be free first")
}

func TestState_Transactions_Values(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	o := State{
		Leader: record.Leader{Incarnation: "a.A", Session: "A"}, LeaderRev: registry.Rev{Seq: 5},
		Clocks: skew.Notice{Skewed: map[string]record.Duration{"c.C": record.Duration(time.Hour)}},
	}
	checkSeat := func(t *testing.T, op registry.Op) {
		t.Helper()
		assert.Equal(t, registry.OpCreateOwned, op.Kind)
		assert.Equal(t, keys.Seat(), op.Key)
		seat, err := record.Decode[record.Seat](op.Value)
		require.NoError(t, err)
		assert.Equal(t, o.Clocks.Skewed, seat.Skewed, "the skewed clocks stay known")
	}
	t.Run("succession", func(t *testing.T) {
		txn, err := o.SuccessionTxn(keys, "b.B", "B")
		require.NoError(t, err)
		leader, err := record.Decode[record.Leader](txn.Then[0].Value)
		require.NoError(t, err)
		assert.Equal(t, "b.B", leader.Incarnation)
		assert.Equal(t, registry.SessionID("B"), leader.Session)
		checkSeat(t, txn.Then[1])
	})
	t.Run("acceptance", func(t *testing.T) {
		txn, err := o.AcceptanceTxn(keys, "A")
		require.NoError(t, err)
		require.Len(t, txn.Then, 1)
		checkSeat(t, txn.Then[0])
	})
}

func TestState_ReasonToLead(t *testing.T) {
	o := State{Leader: record.Leader{Incarnation: "a.A", Session: "A"}}
	assert.Equal(t, "the previous leader resigned and named this instance", o.ReasonToLead(AcceptSeat))
	assert.Equal(t, "the session of the previous leader expired or was closed: a", o.ReasonToLead(TakeSeat))
	assert.Equal(t, "there was no leader", (&State{}).ReasonToLead(TakeSeat))
}
