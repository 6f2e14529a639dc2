package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/rota-dev/rota/registry"
)

// The model of a store that histories are checked against: sessions, and a few keys in
// groups. No transaction spans two groups, so each group is checked on its own.

const (
	maxKeys     = 4  // of a group
	maxSessions = 64 // of a history
)

// cell is the model's state of a key. A Rev is zero while the outcome of its commit is
// unknown, until a read reveals it.
type cell struct {
	there    bool
	txn      registry.TxnID
	created  registry.Rev
	modified registry.Rev
	after    uint64 // lower bound of modified while that is zero
	owner    int    // number of the session, from 1; 0 for none
}

// world is the state of a group. It must be comparable for the checker.
type world struct {
	cells [maxKeys]cell
	ended uint64 // bit set of sessions
	seq   uint64 // of the last known commit
}

func (w *world) alive(session int) bool { return w.ended&(1<<session) == 0 }

// action is a call of a client.
type action struct {
	kind    actionKind
	group   int
	keys    []int // of a read
	txn     modelTxn
	session int // of an end
}

type actionKind int

const (
	readKeys actionKind = iota
	runTxn
	endSession
)

type modelTxn struct {
	id    registry.TxnID
	conds []modelItem
	ops   []modelItem
}

// modelItem is a Cond or an Op with numbers for its key and session.
type modelItem struct {
	cond    registry.CondKind
	op      registry.OpKind
	key     int
	rev     registry.Rev
	session int
}

// answer is the result of an action.
type answer struct {
	unknown  bool
	cells    []cell // as read
	rev      registry.Rev
	conflict int  // index of the item, or -1
	dead     bool // ErrSessionLost
}

// storeModel defines which histories of actions are legal.
func storeModel() porcupine.Model {
	return porcupine.Model{
		Partition: partitionByGroup,
		Init:      func() any { return world{} },
		Step: func(state, input, output any) (bool, any) {
			return state.(world).step(input.(action), output.(answer))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v: %v", input, output) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
}

// partitionByGroup splits a history by group. The end of a session belongs to every
// group.
func partitionByGroup(all []porcupine.Operation) [][]porcupine.Operation {
	var groups [][]porcupine.Operation
	for _, op := range all {
		if a := op.Input.(action); a.kind != endSession && a.group >= len(groups) {
			groups = append(groups, make([][]porcupine.Operation, a.group+1-len(groups))...)
		}
	}
	for _, op := range all {
		a := op.Input.(action)
		for g := range groups {
			if a.kind == endSession || a.group == g {
				groups[g] = append(groups[g], op)
			}
		}
	}
	return groups
}

// step reports whether o is a legal answer to a in state w, and returns the next state. A
// transaction with an unknown outcome takes effect in this order, or never if the search
// places it last.
func (w world) step(a action, o answer) (bool, any) {
	switch a.kind {
	case readKeys:
		for i, key := range a.keys {
			if !w.explainsRead(key, o.cells[i]) {
				return false, w
			}
		}
		return true, w
	case endSession:
		w.endSession(a.session)
		return true, w
	}
	failed, dead := w.firstFailure(a.txn)
	switch {
	case o.unknown:
		if failed < 0 && !dead {
			w.applyTxn(a.txn, registry.Rev{})
		}
		return true, w
	case o.dead:
		return dead, w
	case o.conflict >= 0:
		return failed == o.conflict, w
	case failed >= 0 || dead:
		return false, w
	case len(a.txn.ops) == 0:
		return true, w
	case o.rev.Seq <= w.seq:
		return false, w
	}
	w.applyTxn(a.txn, o.rev)
	return true, w
}

// explainsRead reports whether a read of key may return seen. Such a read also reveals a
// Rev that was unknown.
func (w *world) explainsRead(key int, seen cell) bool {
	c := &w.cells[key]
	if !c.there || !seen.there {
		return c.there == seen.there
	}
	if c.txn != seen.txn || c.owner != seen.owner {
		return false
	}
	if !c.modified.IsZero() {
		return c.modified == seen.modified && c.created == seen.created
	}
	if seen.modified.Seq <= c.after || !c.created.IsZero() && c.created != seen.created {
		return false
	}
	for i := range w.cells { // the transaction's other keys
		d := &w.cells[i]
		if d.there && d.txn == seen.txn && d.modified.IsZero() {
			d.modified = seen.modified
			if d.created.IsZero() {
				d.created = seen.modified
			}
		}
	}
	w.seq = max(w.seq, seen.modified.Seq)
	return c.created == seen.created
}

// firstFailure returns the index of the first item that does not hold, or -1, and whether
// an operation names an ended session as the owner. If both, a store may report either.
func (w *world) firstFailure(x modelTxn) (failed int, dead bool) {
	failed = -1
	fail := func(i int) {
		if failed < 0 {
			failed = i
		}
	}
	for i, c := range x.conds {
		if !w.conditionHolds(c) {
			fail(i)
		}
	}
	for i, o := range x.ops {
		dead = dead || o.op == registry.OpCreateOwned && !w.alive(o.session)
		c := &w.cells[o.key]
		switch o.op {
		case registry.OpCreate, registry.OpCreateOwned:
			if c.there {
				fail(len(x.conds) + i)
			}
		default:
			if !c.there || c.modified != o.rev {
				fail(len(x.conds) + i)
			}
		}
	}
	return failed, dead
}

func (w *world) conditionHolds(c modelItem) bool {
	switch c.cond {
	case registry.CondAbsent:
		return !w.cells[c.key].there
	case registry.CondAt:
		return w.cells[c.key].there && w.cells[c.key].modified == c.rev
	case registry.CondAlive:
		return w.alive(c.session)
	default:
		return !w.alive(c.session)
	}
}

// applyTxn commits x at rev, which is zero if it is unknown.
func (w *world) applyTxn(x modelTxn, rev registry.Rev) {
	for _, o := range x.ops {
		c := &w.cells[o.key]
		switch o.op {
		case registry.OpDelete:
			*c = cell{}
			continue
		case registry.OpCreate:
			*c = cell{there: true, created: rev}
		case registry.OpCreateOwned:
			*c = cell{there: true, created: rev, owner: o.session + 1}
		}
		c.txn, c.modified, c.after = x.id, rev, w.seq
		if !rev.IsZero() {
			c.after = 0
		}
	}
	w.seq = max(w.seq, rev.Seq)
}

func (w *world) endSession(session int) {
	w.ended |= 1 << session
	for i := range w.cells {
		if w.cells[i].owner == session+1 {
			w.cells[i] = cell{}
		}
	}
}

// The String methods serve the visualization of histories.

func (a action) String() string {
	switch a.kind {
	case readKeys:
		return fmt.Sprintf("read %v", a.keys)
	case endSession:
		return fmt.Sprintf("end session %d", a.session)
	}
	items := slices.Concat(a.txn.conds, a.txn.ops)
	return fmt.Sprintf("txn %.4v %v", a.txn.id, items)
}

func (i modelItem) String() string {
	switch {
	case i.cond == registry.CondAbsent:
		return fmt.Sprintf("k%d absent", i.key)
	case i.cond == registry.CondAt:
		return fmt.Sprintf("k%d at %d", i.key, i.rev.Seq)
	case i.cond == registry.CondAlive:
		return fmt.Sprintf("%d alive", i.session)
	case i.cond == registry.CondDead:
		return fmt.Sprintf("%d dead", i.session)
	case i.op == registry.OpCreate:
		return fmt.Sprintf("create k%d", i.key)
	case i.op == registry.OpCreateOwned:
		return fmt.Sprintf("create k%d of %d", i.key, i.session)
	case i.op == registry.OpSet:
		return fmt.Sprintf("set k%d at %d", i.key, i.rev.Seq)
	}
	return fmt.Sprintf("delete k%d at %d", i.key, i.rev.Seq)
}

func (o answer) String() string {
	switch {
	case o.unknown:
		return "unknown"
	case o.dead:
		return "session lost"
	case o.conflict >= 0:
		return fmt.Sprintf("conflict at %d", o.conflict)
	case o.cells != nil:
		return fmt.Sprint(o.cells)
	}
	return fmt.Sprintf("done at %d", o.rev.Seq)
}

func (c cell) String() string {
	if !c.there {
		return "-"
	}
	text := fmt.Sprintf("%.4v at %d", c.txn, c.modified.Seq)
	if c.owner > 0 {
		text += fmt.Sprintf(" of %d", c.owner-1)
	}
	return text
}

func (w world) String() string {
	var b strings.Builder
	for i, c := range w.cells {
		fmt.Fprintf(&b, "k%d: %v; ", i, c)
	}
	fmt.Fprintf(&b, "ended: %b", w.ended)
	return b.String()
}
