package coordinator

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// office is what is known of who leads the group.
type office struct {
	leader     record.Leader // empty: the record is not there, or cannot be read
	leaderRev  registry.Rev  // zero: there is no leader record yet
	present    registry.SessionID
	presentRev registry.Rev // zero: the office is vacant
	successors []string     // as last seen, also once the key that said it has gone
	clocks     clockNotice  // as last seen, in the same way
	incomplete []string     // likewise: incarnations of which a leader misses records
}

// officeStep is what an incarnation does about the office now.
type officeStep int

const (
	follow  officeStep = iota // somebody is in office
	serve                     // this incarnation is in office
	enter                     // it was named and shows that it is there
	succeed                   // the office is vacant
)

// step tells what incarnation me of session s does about the office, and how long it
// holds back first. Successors act at once, in their order; the others give them time,
// and each other: rank and draw spread a hundred candidates so that few of them commit
// anything. draw is random in [0, 1).
func (o *office) step(me string, s registry.SessionID, draw float64) (officeStep, time.Duration) {
	mine := o.leader.Session == s
	switch {
	case mine && o.present == s:
		return serve, 0
	case o.present == s && o.leader.Session == "":
		return succeed, 0 // another hand took the record away, and nobody else can mend it
	case !o.presentRev.IsZero():
		return follow, 0
	case mine:
		return enter, 0
	}
	if rank := slices.Index(o.successors, me); rank >= 0 {
		return succeed, time.Duration(rank) * successionStep
	}
	if len(o.successors) == 0 && o.leaderRev.IsZero() {
		return succeed, time.Duration(draw * float64(successionStep)) // the group is new
	}
	behind := len(o.successors) + 1
	return succeed, time.Duration(behind)*successionStep + time.Duration(draw*float64(8*successionStep))
}

// successionStep is what each rank gives the one before it: a few commits' time.
const successionStep = 25 * time.Millisecond

// succession is the transaction by which me takes the office: vacant as o says it is, or
// its own under a record that another hand took away. Where that record names nobody, who
// must be dead is not known. That two could then think they lead harms nothing: the term
// tells.
func (o *office) succession(k record.Keys, me string, s registry.SessionID) (registry.Txn, error) {
	leader, err := record.Encode(record.Leader{Incarnation: me, Session: s})
	if err != nil {
		return registry.Txn{}, err
	}
	present, err := record.Encode(record.Present{Off: o.clocks.off})
	if err != nil {
		return registry.Txn{}, err
	}
	var t registry.Txn // that s lives goes without saying: a key is created that it owns, or stands
	if o.leader.Session != "" {
		t.If = append(t.If, registry.Dead(o.leader.Session))
	}
	if o.leaderRev.IsZero() {
		t.Then = append(t.Then, registry.Create(k.Leader(), leader))
	} else {
		t.Then = append(t.Then, registry.Set(k.Leader(), o.leaderRev, leader))
	}
	if o.present == s {
		t.If = append(t.If, registry.At(k.Present(), o.presentRev))
	} else {
		t.Then = append(t.Then, registry.CreateOwned(k.Present(), present, s))
	}
	return t, nil
}

// entry is the transaction by which the leader that o names shows that it is there.
func (o *office) entry(k record.Keys, s registry.SessionID) (registry.Txn, error) {
	present, err := record.Encode(record.Present{Off: o.clocks.off})
	return registry.Txn{
		If:   []registry.Cond{registry.At(k.Leader(), o.leaderRev)},
		Then: []registry.Op{registry.CreateOwned(k.Present(), present, s)},
	}, err
}

// resignation is the transaction by which the leader in office hands over to another
// incarnation, which must live: the office is never vacant in between.
func (o *office) resignation(k record.Keys, to string) (registry.Txn, error) {
	leader, err := record.Encode(record.Leader{Incarnation: to, Session: sessionOf(to)})
	return registry.Txn{
		If: []registry.Cond{registry.Alive(sessionOf(to))},
		Then: []registry.Op{
			registry.Set(k.Leader(), o.leaderRev, leader),
			registry.Delete(k.Present(), o.presentRev),
		},
	}, err
}

// reason returns why a step leads to the office, for the log.
func (o *office) reason(s officeStep) string {
	switch {
	case s == enter:
		return "the leader before handed the office over"
	case o.leader.Session == "":
		return "there was no leader"
	}
	return "the leader before is gone: " + instanceOf(o.leader.Incarnation)
}
