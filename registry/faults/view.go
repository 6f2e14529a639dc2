package faults

import (
	"errors"
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// view holds answers to reads of a handle, for stale reads. All of them hold at one commit, which
// is at least as new as everything that the handle has observed. So each may be returned again
// until the handle observes something newer; then the view is emptied.
//
// Answers are added only while a Stale rule is active for the client.
type view struct {
	mu    sync.Mutex
	rules uint64 // Injector.viewRules of the answers
	turn  uint64 // raised when the view is emptied
	seq   uint64 // the handle has observed the state of this commit; that of the answers is not older
	gets  map[registry.Key]getAnswer
	lists map[registry.Key]registry.Listing
}

// getAnswer is an entry, or the error of a Get that found none.
type getAnswer struct {
	entry   registry.Entry
	missing error
}

// sync empties the view if the Stale rules have changed. It reports whether one is active. v.mu is
// held.
func (v *view) sync(h *handle) (stale bool) {
	rules, stale := h.in.viewRules(h.name)
	if rules != v.rules {
		v.rules = rules
		v.empty()
	}
	return stale
}

// empty removes all answers, and keeps those of pending reads out. v.mu is held.
func (v *view) empty() {
	v.turn++
	v.gets, v.lists = nil, nil
}

// catchUp empties the view because the handle observes a state that may be newer: that of rev at
// least, if rev is not zero.
func (v *view) catchUp(h *handle, rev registry.Rev) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sync(h)
	v.empty()
	v.seq = max(v.seq, rev.Seq)
}

// get returns the answer to an earlier Get.
func (v *view) get(h *handle, key registry.Key, buf []byte) (e registry.Entry, err error, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sync(h)
	a, ok := v.gets[key]
	if !ok || a.missing != nil {
		return registry.Entry{}, a.missing, ok
	}
	e = a.entry
	if cap(buf) < len(e.Value) {
		buf = make([]byte, len(e.Value))
	}
	e.Value = append(buf[:0], e.Value...)
	return e, nil, true
}

// list returns the answer to an earlier List.
func (v *view) list(h *handle, dir registry.Key) (l registry.Listing, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sync(h)
	l, ok = v.lists[dir]
	l.Entries = cloneEntries(l.Entries)
	return l, ok
}

// begin returns the turn in which a read begins.
func (v *view) begin(h *handle) (turn uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sync(h)
	return v.turn
}

// observeGet handles the answer to a Get of the inner registry that began in that turn.
func (v *view) observeGet(h *handle, began uint64, key registry.Key, fresh bool, e registry.Entry, err error) {
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return // it shows nothing
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	stale := v.sync(h)
	inTurn := began == v.turn
	if !fresh {
		if old, ok := v.gets[key]; ok && sameAnswer(old, e, err) {
			return
		}
	}
	// An entry that was written before v.seq was there at v.seq: it shows nothing newer.
	if fresh || err != nil || e.Modified.Seq > v.seq {
		v.empty()
		v.seq = max(v.seq, e.Modified.Seq)
	}
	if !stale || !inTurn {
		return // another call may have observed something newer meanwhile
	}
	if v.gets == nil {
		v.gets = make(map[registry.Key]getAnswer)
	}
	e.Value = slices.Clone(e.Value)
	v.gets[key] = getAnswer{entry: e, missing: err}
}

func sameAnswer(a getAnswer, e registry.Entry, err error) bool {
	if a.missing != nil || err != nil {
		return a.missing != nil && err != nil
	}
	return sameEntry(a.entry, e)
}

func sameEntry(a, b registry.Entry) bool {
	return a.Key == b.Key && a.Created == b.Created && a.Modified == b.Modified
}

// observeList handles the answer to a List of the inner registry that began in that turn.
func (v *view) observeList(h *handle, began uint64, dir registry.Key, fresh bool, l registry.Listing, err error) {
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	stale := v.sync(h)
	inTurn := began == v.turn
	if !fresh && l.Rev.Seq <= v.seq {
		if old, ok := v.lists[dir]; ok && slices.EqualFunc(old.Entries, l.Entries, sameEntry) {
			return
		}
	}
	v.empty() // a key that is absent may have been deleted after v.seq
	if l.Atomic {
		v.seq = max(v.seq, l.Rev.Seq)
	}
	for i := range l.Entries {
		v.seq = max(v.seq, l.Entries[i].Modified.Seq)
	}
	if !stale || !inTurn || !l.Atomic { // entries of different commits are no view
		return
	}
	if v.lists == nil {
		v.lists = make(map[registry.Key]registry.Listing)
	}
	l.Entries = cloneEntries(l.Entries)
	v.lists[dir] = l
}

// cloneEntries returns copies of entries with values of their own.
func cloneEntries(entries []registry.Entry) []registry.Entry {
	copies := slices.Clone(entries)
	for i := range copies {
		copies[i].Value = slices.Clone(copies[i].Value)
	}
	return copies
}
