package elector

import (
	"context"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// PublishSeat writes successors, skewed clocks and incomplete incarnations into the seat record. It
// writes only if one of them has changed, or if always is true. The leader record, and hence the
// term, stay as they are.
func (e *Elector) PublishSeat(ctx context.Context, names []string, clocks skew.Notice, always bool) error {
	e.mu.Lock()
	now, incomplete := e.State, e.incomplete
	e.mu.Unlock()
	if now.Seat != e.Self.Session.ID() ||
		!always && slices.Equal(now.Successors, names) && now.Clocks.NamesSame(clocks) && slices.Equal(now.Incomplete, incomplete) {
		return nil
	}
	value, err := record.Encode(record.Seat{Successors: names, Clock: clocks.At, Skewed: clocks.Skewed, Differing: clocks.Differing, Incomplete: incomplete})
	if err != nil {
		return err
	}
	txn := registry.Txn{Then: []registry.Op{registry.Set(e.Self.Keys.Seat(), now.SeatRev, value)}}
	rev, err := registry.Apply(ctx, e.Self.Reg, txn)
	if err != nil {
		return fmt.Errorf("write seat record: %w", err)
	}
	e.mu.Lock()
	if e.State.SeatRev == now.SeatRev { // ReadFeed may have applied a newer version meanwhile
		e.State.SeatRev, e.State.Successors, e.State.Clocks, e.State.Incomplete = rev, names, clocks, incomplete
	}
	e.mu.Unlock()
	e.Feed.RecordWrite(e.Self.Keys.Seat().Name(), rev, registry.Entry{
		Key: e.Self.Keys.Seat(), Value: value, Modified: rev, Owner: e.Self.Session.ID(),
	})
	return nil
}

// Resign hands leadership over to a live successor. It reports false if there is none, or if this
// incarnation does not hold the seat.
func (e *Elector) Resign(ctx context.Context) bool {
	e.mu.Lock()
	successors := e.State.Successors
	e.mu.Unlock()
	return e.handOverToFirst(ctx, successors)
}

// handOverToFirst hands leadership over to the first live candidate.
func (e *Elector) handOverToFirst(ctx context.Context, candidates []string) bool {
	e.mu.Lock()
	now := e.State
	e.mu.Unlock()
	if now.Seat != e.Self.Session.ID() {
		return false
	}
	for _, to := range candidates {
		txn, err := now.ResignationTxn(e.Self.Keys, to)
		if err != nil {
			return false
		}
		e.setHandedTo(record.InstanceOf(to)) // before the end of the term is observed, so that its log line names the successor
		rev, err := registry.Apply(ctx, e.Self.Reg, txn)
		if err != nil {
			e.setHandedTo("")
			e.Log.Debug("leadership not handed over", "to", to, "error", err)
			continue
		}
		leader := txn.Then[0]
		e.Feed.RecordWrite(leader.Key.Name(), rev, registry.Entry{Key: leader.Key, Value: leader.Value, Modified: rev})
		e.Log.Debug("resigned", "to", to)
		return true
	}
	return false
}

// setHandedTo records to which instance leadership is being handed over.
func (e *Elector) setHandedTo(to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handedTo = to
}
