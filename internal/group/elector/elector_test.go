package elector

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/election"
	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// newLeadingElector returns the elector of an incarnation that holds the seat. Its loop does not run.
func NewLeadingElector(t *testing.T) *Elector {
	reg := memory.New().Client("a")
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	s, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	self := Self{
		ID: record.Incarnation("a", s.ID()), Name: "a", Session: s, Reg: reg, Keys: keys,
		Planning: &PlanningCalls{}, IsDraining: func() bool { return false },
	}
	o := New(self, nil, slog.New(slog.DiscardHandler))
	txn, err := o.State.SuccessionTxn(keys, self.ID, s.ID())
	require.NoError(t, err)
	rev, err := reg.Txn(t.Context(), txn)
	require.NoError(t, err)
	o.State = election.State{
		Leader: record.Leader{Incarnation: self.ID, Session: s.ID()}, LeaderRev: rev,
		Seat: s.ID(), SeatRev: rev,
	}
	return o
}

func TestElector_KnowsItsWritesBeforeTheFeed(t *testing.T) {
	o := NewLeadingElector(t)
	require.NoError(t, o.PublishSeat(t.Context(), []string{"b.B"}, skew.Notice{}, false))
	require.NoError(t, o.PublishSeat(t.Context(), []string{"c.C", "b.B"}, skew.Notice{}, false))
	assert.Equal(t, []string{"c.C", "b.B"}, o.State.Successors)
}

func TestElector_DrainingSuccessorIsLastButAcceptsAtOnce(t *testing.T) {
	o := NewLeadingElector(t)
	o.Self.IsDraining = func() bool { return true }
	o.State.Seat, o.State.SeatRev = "", registry.Rev{}
	step, wait := o.nextStep()
	assert.Equal(t, election.AcceptSeat, step)
	assert.Zero(t, wait, "all others wait for the named leader")

	o.State.Leader = record.Leader{Incarnation: "b.B", Session: "B"}
	o.State.Successors = []string{o.Self.ID}
	step, wait = o.nextStep()
	assert.Equal(t, election.TakeSeat, step)
	_, other := o.State.NextStep("c.C", "C", 1)
	assert.Greater(t, wait, other)
}

func TestElector_CountsConflictsOfOneVacancy(t *testing.T) {
	o := NewLeadingElector(t)
	r := o.Feed.NewReader(func() {})
	defer r.Close()
	o.conflicts = 7
	o.Feed.RecordWrite(o.Self.Keys.Seat().Name(), registry.Rev{Seq: o.State.SeatRev.Seq + 1}, registry.Entry{})
	o.ReadFeed(r)
	assert.Zero(t, o.conflicts, "attempts on the next vacancy do not wait for those on the last")
}

// afterTxn calls f between a commit and its answer.
type afterTxn struct {
	registry.Registry
	f func()
}

func (a afterTxn) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	rev, err := a.Registry.Txn(ctx, t)
	a.f()
	return rev, err
}

func TestElector_KeepsANewerSeatRecordThanItsWrite(t *testing.T) {
	o := NewLeadingElector(t)
	newer := registry.Rev{Seq: o.State.SeatRev.Seq + 9}
	o.Self.Reg = afterTxn{o.Self.Reg, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.State.SeatRev, o.State.Successors = newer, []string{"c.C"}
	}}
	require.NoError(t, o.PublishSeat(t.Context(), []string{"b.B"}, skew.Notice{}, false))
	assert.Equal(t, newer, o.State.SeatRev)
	assert.Equal(t, []string{"c.C"}, o.State.Successors)
}
