package lock

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// view is the observed state of the directory of a lock, from which acquirers decide
// their next step. It lags behind the store, so each step is a Txn that has a condition on
// every record that the decision rests on.
type view struct {
	dir     registry.Key
	synced  bool  // there was a Snapshot
	failed  error // the error that ended the watch
	version int   // number of batches applied

	owner  registry.Entry // zero if there is none
	known  uint64         // a commit at which owner was current
	floor  uint64         // while known < floor, the owner's record has changed since
	holder registry.SessionID
	held   registry.Key // the holder's place

	places map[registry.Key]registry.Entry // the holder's, and those in the queue
	first  registry.Key                    // the oldest of those in the queue, empty if there is none
	bad    map[registry.Key]error          // keys that are not a lock's
}

// step is the next step of an acquirer.
type step int

const (
	lockWait step = iota // wait for a change of the view
	lockJoin             // join the queue
	lockTake             // take the lock: it is open, and no place is before ours
	lockHold             // return the lock: it has passed to our place
)

// apply brings v up to date.
func (v *view) apply(b registry.Batch) {
	v.version++
	if b.Kind == registry.Snapshot {
		v.synced = true
		v.places = make(map[registry.Key]registry.Entry)
		v.bad = make(map[registry.Key]error)
		v.setOwner(registry.Entry{}, b.Rev.Seq)
	}
	for _, key := range b.Deletes {
		delete(v.places, key)
		delete(v.bad, key)
		if key == v.ownerKey() {
			v.setOwner(registry.Entry{}, b.Rev.Seq)
		}
	}
	for _, e := range slices.Backward(b.Puts) { // the owner's record sorts first; apply it last
		v.put(e)
	}
	v.first = v.oldest("").Key
}

func (v *view) put(e registry.Entry) {
	delete(v.bad, e.Key)
	if e.Key.Owned() && bytes.Equal(e.Value, placeValue) {
		v.places[e.Key] = e
		return
	}
	r, err := decodeOwner(e)
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
			// The commit that changes the owner deletes the old holder's place, or its session
			// has ended. A store may deliver that deletion later; until then the place would be
			// first in the queue. A place created after the change stays in the view: a delayed
			// request created it again, and only a place in the view is removed.
			delete(v.places, before)
		}
	}
}

func (v *view) setOwner(e registry.Entry, known uint64) {
	v.owner, v.known, v.holder, v.held = e, known, "", ""
}

func (v *view) ownerKey() registry.Key { return v.dir.Join(ownerName) }

// oldest returns the first place in the queue other than except, or the zero Entry.
func (v *view) oldest(except registry.Key) registry.Entry {
	var first registry.Entry
	for key, e := range v.places {
		if key != v.held && key != except && (first.Key == "" || olderPlace(e, first) < 0) {
			first = e
		}
	}
	return first
}

func olderPlace(a, b registry.Entry) int {
	return cmp.Or(cmp.Compare(a.Created.Seq, b.Created.Seq), cmp.Compare(a.Key, b.Key))
}

// open reports whether the lock can be taken: it is free, or its holder's place does not
// exist, which means that the holder's session has ended.
func (v *view) open() bool {
	if v.holder == "" {
		return true
	}
	_, lives := v.places[v.held]
	return !lives
}

// stepFor returns the next step of an acquirer of session at place, which is empty while it
// is not in the queue. seen means that the view has contained place. Of all acquirers in the
// queue, only the first gets another step than lockWait, and those whose place was deleted.
func (v *view) stepFor(session registry.SessionID, place registry.Key, seen bool) (step, error) {
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

// err returns the reason why no decision can be based on v, or nil.
func (v *view) err() error {
	if v.failed != nil {
		return v.failed
	}
	if len(v.bad) > 0 {
		return v.bad[slices.Min(slices.Collect(maps.Keys(v.bad)))]
	}
	return nil
}
