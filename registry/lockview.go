package registry

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// lockView is the directory of a lock, as it was last heard of, and what follows from it
// for one who wants the lock. It lags behind, so what is decided here is only ever tried:
// by a Txn with a condition on each record that the decision rests on.
type lockView struct {
	dir    Key
	synced bool  // there was a Snapshot
	failed error // why no more will be heard
	news   int   // counts the batches

	owner  Entry  // zero if there is none
	known  uint64 // a commit at which owner stood so
	floor  uint64 // while known is before it, there has been more than v knows
	holder SessionID
	held   Key // the holder's place

	places map[Key]Entry // the holder's, and those in line
	first  Key           // the oldest of those in line, empty if there is none
	bad    map[Key]error // what must not be there
}

// lockStep is what one who wants the lock is to do next.
type lockStep int

const (
	lockWait lockStep = iota // for news
	lockJoin                 // get in line
	lockTake                 // the lock is open, and nobody is before us
	lockHold                 // the lock was passed on to us
)

// apply brings v up to date.
func (v *lockView) apply(b Batch) {
	v.news++
	if b.Kind == Snapshot {
		v.synced = true
		v.places = make(map[Key]Entry)
		v.bad = make(map[Key]error)
		v.setOwner(Entry{}, b.Rev.Seq)
	}
	for _, key := range b.Deletes {
		delete(v.places, key)
		delete(v.bad, key)
		if key == v.ownerKey() {
			v.setOwner(Entry{}, b.Rev.Seq)
		}
	}
	for _, e := range slices.Backward(b.Puts) { // the owner's record, which sorts first, last
		v.put(e)
	}
	v.first = v.oldest("").Key
}

func (v *lockView) put(e Entry) {
	delete(v.bad, e.Key)
	if e.Key.Owned() && bytes.Equal(e.Value, lockPlace) {
		v.places[e.Key] = e
		return
	}
	r, err := decodeLockRecord(e)
	switch {
	case err != nil:
		v.bad[e.Key] = err
	case e.Key.Owned():
		v.places[e.Key] = e
	default:
		before := v.held
		v.setOwner(e, e.Modified.Seq)
		v.holder = r.Session
		if r.Place != "" {
			v.held = v.dir.Join(r.Place)
		}
		if before != v.held && v.places[before].Created.Seq < e.Modified.Seq {
			// The place of a holder goes with its tenure, by the same commit or because its
			// session has ended. A store may tell of that later, and until then it would be
			// first in line. A place that was created after the change stays in the view: a
			// delayed request put it back, and only a place in the view is deleted.
			delete(v.places, before)
		}
	}
}

func (v *lockView) setOwner(e Entry, known uint64) {
	v.owner, v.known, v.holder, v.held = e, known, "", ""
}

func (v *lockView) ownerKey() Key { return v.dir.Join(lockOwner) }

// oldest returns the first place in line besides one: the zero Entry if there is none.
func (v *lockView) oldest(besides Key) Entry {
	var first Entry
	for key, e := range v.places {
		if key != v.held && key != besides && (first.Key == "" || olderPlace(e, first) < 0) {
			first = e
		}
	}
	return first
}

func olderPlace(a, b Entry) int {
	return cmp.Or(cmp.Compare(a.Created.Seq, b.Created.Seq), cmp.Compare(a.Key, b.Key))
}

// open reports that the lock can be taken: it is free, or its holder's place is gone, and
// hence the holder's session has ended.
func (v *lockView) open() bool {
	if v.holder == "" {
		return true
	}
	_, lives := v.places[v.held]
	return !lives
}

// step tells one who wants the lock for session what to do next. Its place is empty while
// it is not in line; seen means that its place has been in the view. It is the only one
// to do something of all who wait, unless its place has gone.
func (v *lockView) step(session SessionID, place Key, seen bool) (lockStep, error) {
	if err := v.err(); err != nil {
		return lockWait, err
	}
	_, inLine := v.places[place]
	switch {
	case !v.synced || v.known < v.floor:
		return lockWait, nil
	case v.holder == session && v.held == place:
		return lockHold, nil
	case v.holder == session:
		return lockWait, ErrHeld
	case place == "" && v.first == "" && v.open():
		return lockTake, nil
	case place == "", seen && !inLine:
		return lockJoin, nil
	case v.first == place && v.open():
		return lockTake, nil
	}
	return lockWait, nil
}

// err returns why v is of no use.
func (v *lockView) err() error {
	if v.failed != nil {
		return v.failed
	}
	if len(v.bad) > 0 {
		return v.bad[slices.Min(slices.Collect(maps.Keys(v.bad)))]
	}
	return nil
}
