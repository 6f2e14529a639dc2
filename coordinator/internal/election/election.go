package election

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// State is what is known of who leads the group.
type State struct {
	Leader     record.Leader // empty: the record is not there, or cannot be read
	LeaderRev  registry.Rev  // zero: there is no leader record yet
	Seat       registry.SessionID
	SeatRev    registry.Rev // zero: the office is vacant
	Successors []string     // as last seen, also once the key that said it has gone
	Clocks     skew.Notice  // as last seen, in the same way
	Incomplete []string     // likewise: incarnations of which a leader misses records
}

// Step is what an incarnation does about the office now.
type Step int

const (
	Follow     Step = iota // somebody is in office
	Lead                   // this incarnation is in office
	AcceptSeat             // it was named and shows that it is there
	TakeSeat               // the office is vacant
)

// NextStep tells what incarnation me of session s does about the office, and how long it
// holds back first. Successors act at once, in their order; the others give them time,
// and each other: rank and draw spread a hundred candidates so that few of them commit
// anything. draw is random in [0, 1).
func (o *State) NextStep(me string, s registry.SessionID, draw float64) (Step, time.Duration) {
	mine := o.Leader.Session == s
	switch {
	case mine && o.Seat == s:
		return Lead, 0
	case o.Seat == s && o.Leader.Session == "":
		return TakeSeat, 0 // another hand took the record away, and nobody else can mend it
	case !o.SeatRev.IsZero():
		return Follow, 0
	case mine:
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

// SuccessionDelay is what each rank gives the one before it: a few commits' time.
const SuccessionDelay = 25 * time.Millisecond

// SuccessionTxn is the transaction by which me takes the office: vacant as o says it is, or
// its own under a record that another hand took away. Where that record names nobody, who
// must be dead is not known. That two could then think they lead harms nothing: the term
// tells.
func (o *State) SuccessionTxn(k record.Keys, me string, s registry.SessionID) (registry.Txn, error) {
	leader, err := record.Encode(record.Leader{Incarnation: me, Session: s})
	if err != nil {
		return registry.Txn{}, err
	}
	present, err := record.Encode(record.Seat{Skewed: o.Clocks.Skewed})
	if err != nil {
		return registry.Txn{}, err
	}
	var t registry.Txn // that s lives goes without saying: a key is created that it owns, or stands
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
		t.Then = append(t.Then, registry.CreateOwned(k.Seat(), present, s))
	}
	return t, nil
}

// AcceptanceTxn is the transaction by which the leader that o names shows that it is there.
func (o *State) AcceptanceTxn(k record.Keys, s registry.SessionID) (registry.Txn, error) {
	present, err := record.Encode(record.Seat{Skewed: o.Clocks.Skewed})
	return registry.Txn{
		If:   []registry.Cond{registry.At(k.Leader(), o.LeaderRev)},
		Then: []registry.Op{registry.CreateOwned(k.Seat(), present, s)},
	}, err
}

// ResignationTxn is the transaction by which the leader in office hands over to another
// incarnation, which must live: the office is never vacant in between.
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

// ReasonToLead returns why a step leads to the office, for the log.
func (o *State) ReasonToLead(s Step) string {
	switch {
	case s == AcceptSeat:
		return "the leader before handed the office over"
	case o.Leader.Session == "":
		return "there was no leader"
	}
	return "the leader before is gone: " + record.InstanceOf(o.Leader.Incarnation)
}
