package election

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// State is an elector's view of the election records.
type State struct {
	Leader     record.Leader // empty if the record is missing or unreadable
	LeaderRev  registry.Rev  // zero: there is no leader record
	Seat       registry.SessionID
	SeatRev    registry.Rev // zero: the seat is free
	Successors []string     // as last published, also after the seat has vanished
	Clocks     skew.Notice  // likewise
	Incomplete []string     // likewise: incarnations with a missing record
}

// Step is an incarnation's next action in the election.
type Step int

const (
	Follow     Step = iota // the seat is taken
	Lead                   // this incarnation has the seat
	AcceptSeat             // a leader that resigned has named this incarnation
	TakeSeat               // the seat is free, or its leader record is missing
)

// NextStep returns the step of incarnation me with session s, and how long to wait before it. Successors act
// in their order, each SuccessionDelay after the one before. All others follow later, spread by draw,
// which is random in [0, 1): so few of a hundred candidates send a transaction that conflicts.
func (o *State) NextStep(me string, s registry.SessionID, draw float64) (Step, time.Duration) {
	named := o.Leader.Session == s
	switch {
	case named && o.Seat == s:
		return Lead, 0
	case o.Seat == s && o.Leader.Session == "":
		return TakeSeat, 0 // another writer deleted the leader record, and only the seat's owner can restore it
	case !o.SeatRev.IsZero():
		return Follow, 0
	case named:
		return AcceptSeat, 0
	}
	if rank := slices.Index(o.Successors, me); rank >= 0 {
		return TakeSeat, time.Duration(rank) * SuccessionDelay
	}
	if len(o.Successors) == 0 && o.LeaderRev.IsZero() {
		return TakeSeat, time.Duration(draw * float64(SuccessionDelay)) // the group is new
	}
	behind := len(o.Successors) + 1
	return TakeSeat, time.Duration(behind)*SuccessionDelay + time.Duration(draw*float64(8*SuccessionDelay))
}

// SuccessionDelay is how long each successor waits for the one before it: the time of a few commits.
const SuccessionDelay = 25 * time.Millisecond

// SuccessionTxn returns the transaction by which me takes the free seat, or restores the leader record
// under its own seat after another writer deleted it.
//
// Its conditions make sure that no two sessions lead at once: the leader on record is dead, and the
// record has not changed since it was observed. The session s is alive, because the transaction creates
// a key that it owns or has its seat as a condition. A deleted record names no session to check. Then
// two incarnations may believe that they lead; the term, a condition of every write of a leader, stops
// the earlier one.
func (o *State) SuccessionTxn(k record.Keys, me string, s registry.SessionID) (registry.Txn, error) {
	leader, err := record.Encode(record.Leader{Incarnation: me, Session: s})
	if err != nil {
		return registry.Txn{}, err
	}
	seat, err := record.Encode(record.Seat{Skewed: o.Clocks.Skewed})
	if err != nil {
		return registry.Txn{}, err
	}
	var t registry.Txn
	if o.Leader.Session != "" {
		t.If = append(t.If, registry.Dead(o.Leader.Session))
	}
	if o.LeaderRev.IsZero() {
		t.Then = append(t.Then, registry.Create(k.Leader(), leader))
	} else {
		t.Then = append(t.Then, registry.Set(k.Leader(), o.LeaderRev, leader))
	}
	if o.Seat == s {
		t.If = append(t.If, registry.At(k.Seat(), o.SeatRev))
	} else {
		t.Then = append(t.Then, registry.CreateOwned(k.Seat(), seat, s))
	}
	return t, nil
}

// AcceptanceTxn returns the transaction by which the named leader creates its seat. It conflicts if
// another incarnation has been named since.
func (o *State) AcceptanceTxn(k record.Keys, s registry.SessionID) (registry.Txn, error) {
	seat, err := record.Encode(record.Seat{Skewed: o.Clocks.Skewed})
	return registry.Txn{
		If:   []registry.Cond{registry.At(k.Leader(), o.LeaderRev)},
		Then: []registry.Op{registry.CreateOwned(k.Seat(), seat, s)},
	}, err
}

// ResignationTxn returns the transaction by which the leader names incarnation to as the next one and
// frees the seat. It has the condition that to is alive: naming an expired one would delay the next
// term by an election.
func (o *State) ResignationTxn(k record.Keys, to string) (registry.Txn, error) {
	leader, err := record.Encode(record.Leader{Incarnation: to, Session: record.SessionOf(to)})
	return registry.Txn{
		If: []registry.Cond{registry.Alive(record.SessionOf(to))},
		Then: []registry.Op{
			registry.Set(k.Leader(), o.LeaderRev, leader),
			registry.Delete(k.Seat(), o.SeatRev),
		},
	}, err
}

// ReasonToLead returns, for the log, why step s made this incarnation the leader.
func (o *State) ReasonToLead(s Step) string {
	switch {
	case s == AcceptSeat:
		return "the previous leader resigned and named this instance"
	case o.Leader.Session == "":
		return "there was no leader"
	}
	return "the session of the previous leader expired or was closed: " + record.InstanceOf(o.Leader.Incarnation)
}
