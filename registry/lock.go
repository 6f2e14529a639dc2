package registry

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// The errors of a lock, besides those of its registry.
var (
	// ErrHeld: the session holds the lock that it is to acquire. Waiting for it would be
	// waiting for itself.
	ErrHeld = errors.New("lock held by the same session")
	// ErrLockRecord: in the directory of a lock there is a key that is not a lock's. Until
	// somebody takes it away, nobody acquires the lock; one who holds it keeps it.
	ErrLockRecord = errors.New("not a lock's record")
)

// withdrawal is how long an Acquire that was given up waits for its place in line to be
// gone, before it leaves that to the Lock.
const withdrawal = time.Second

// Lock is a fair lock on a directory of a registry, with a fence.
//
// It is held by a session, from a commit to a commit: that of Acquire and that of
// Release, or the end of the session. Those who wait stand in line in the order in which
// their places in it were committed. A held lock goes to the first in line whose session
// lives, and only a lock that nobody holds or waits for goes to one who is not in line.
// A place that is committed at the very moment when the lock is free may be too late for
// someone to see who takes the free lock.
//
// Acquiring a free lock is one commit, and so is releasing it. A release names the next
// holder, if anyone is in line; that one only has to hear of it. So a lock that is wanted
// by many costs one commit to get in line and one to go on, and the others do nothing.
//
// A Lock follows its directory with one watch, from the first Acquire to Close, so a
// process has one Lock for each directory and uses it again. Its directory must hold
// nothing else:
//
//	dir/owner   {"lock":1,"session":"...","place":"~..."}; without session and place, it is
//	            free. It is written when the lock changes hands and at no other time, and
//	            never deleted
//	dir/~...    a place: of the holder, and of each that waits. Owned by its session
//
// # What is not promised
//
// That the holder has stopped when the next one begins. A process may have been paused,
// and its session ended, between a look at Lost and a write. Guard what is written to the
// registry under the lock with Held.Guard, and send Held.Fence to other stores.
type Lock struct {
	reg Registry
	dir Key

	ctx    context.Context // of all calls to reg. Ends with Close
	cancel context.CancelCauseFunc
	closed chan struct{} // closed when Close begins

	mu        sync.Mutex
	isClosed  bool
	follower  sync.WaitGroup
	following bool
	view      lockView
	claims    map[*claim]struct{} // of the calls of Acquire that are not over
	settling  sync.WaitGroup      // for all claims and withdrawals
	ghosts    map[Key]*ghost      // places that may come to be once more
}

// NewLock returns the lock on dir. It calls nothing: the first Acquire does.
func NewLock(reg Registry, dir Key) *Lock {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Lock{
		reg:    reg,
		dir:    dir,
		ctx:    ctx,
		cancel: cancel,
		closed: make(chan struct{}),
		view:   lockView{dir: dir},
		claims: make(map[*claim]struct{}),
		ghosts: make(map[Key]*ghost),
	}
}

// Acquire waits until s, a session of the lock's registry, holds the lock.
//
// It gives up when ctx ends, with its cause; when s is lost or closed, at once, with
// ErrSessionLost; when s holds the lock already, or comes to hold it by another Acquire
// while this one waits, with ErrHeld; when the directory holds what is not a lock's, with
// ErrLockRecord; with ErrClosed after Close; and when the registry refuses for good, such
// as with ErrPermission. While the registry cannot be reached it keeps trying.
//
// One who has given up is not in line any more. If the registry cannot be reached when ctx
// ends, Acquire returns after a second at the latest and its place is given up as soon as
// the registry can be reached; a lock that came to it in between is passed on.
func (l *Lock) Acquire(ctx context.Context, s Session) (*Held, error) {
	h, err := l.acquire(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", l.dir, err)
	}
	return h, nil
}

func (l *Lock) acquire(ctx context.Context, s Session) (*Held, error) {
	if err := checkLock(l.dir); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.Err() != nil {
		return nil, sessionOver(s)
	}
	c, err := l.claim(s)
	if err != nil {
		return nil, err
	}
	select {
	case h := <-c.granted:
		return h, nil
	case <-c.done:
		return nil, c.err
	case <-s.Lost():
		// What it has in the registry goes with the session: there is nothing to wait for.
		err = sessionOver(s)
		c.cancel(err)
		<-c.done
		return nil, err
	case <-ctx.Done():
		c.giveUp()
		return nil, context.Cause(ctx)
	}
}

// Close ends the use of l: calls of Acquire return ErrClosed, and their places in line
// are given up. When it returns, no goroutine of l is left. If ctx ends first, places that
// the registry could not be told of stay until their sessions end. Locks that are held
// remain so, and are to be released. Closing twice is legal.
func (l *Lock) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.isClosed {
		l.isClosed = true
		close(l.closed)
	}
	l.mu.Unlock()

	settled := make(chan struct{})
	go func() {
		l.settling.Wait()
		close(settled)
	}()
	var err error
	select {
	case <-settled:
	case <-ctx.Done():
		err = fmt.Errorf("close lock %s: %w", l.dir, context.Cause(ctx))
	}
	l.cancel(ErrClosed)
	<-settled
	l.follower.Wait()
	return err
}

// Held is a lock that is held, by the session that Acquire was given.
type Held struct {
	lock    *Lock
	session Session
	rev     Rev // of the commit that gave it the lock
	place   Key
	placed  Rev // when place was written

	doubted bool // a request to create place may still be under way

	turn    chan struct{} // one slot, taken by the Release that is under way
	over    bool
	err     error // of a Release when over
	pending Txn   // a release that may have been applied
}

func (l *Lock) hold(s Session, place Key, rev, placed Rev) *Held {
	return &Held{lock: l, session: s, place: place, rev: rev, placed: placed, turn: make(chan struct{}, 1)}
}

// Fence returns the number of the commit by which the lock was acquired. It is greater
// than that of every earlier holder, whatever became of it. A store that keeps the highest
// it has seen, and refuses lower ones, is safe from holders that do not know that they
// have lost the lock.
func (h *Held) Fence() uint64 { return h.rev.Seq }

// Guard returns the condition that the lock has not changed hands, and was not released,
// since this Acquire. Put it into every Txn that is right only under the lock.
func (h *Held) Guard() Cond { return At(h.lock.owner(), h.rev) }

// Lost is closed when the session of the holder is lost or closed. Another may hold the
// lock soon after.
func (h *Held) Lost() <-chan struct{} { return h.session.Lost() }

// Release gives up the lock: to the first in line if there is one. It can free no other
// tenure than this one, whatever happened in between.
//
// Nil means that nobody else held the lock between Acquire and Release. After
// ErrSessionLost that cannot be said: the lock was taken over, or may have been, since the
// session ended. In both cases it is over, and Release returns the same again.
//
// Otherwise it may still be held: the error says whether the request was sent
// (ErrUnknownOutcome) or not (ErrNotApplied), or why it was refused. Release can then be
// called again, and needs to be: a lock that is not released stays held until the session
// ends. So give Release a context of its own, not the one that has just ended.
func (h *Held) Release(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return fmt.Errorf("release %s: %w: %w", h.lock.dir, ErrNotApplied, context.Cause(ctx))
	}
	if !h.over {
		h.over, h.err = h.release(ctx)
		if h.err != nil {
			h.err = fmt.Errorf("release %s: %w", h.lock.dir, h.err)
		}
		if h.over {
			h.lock.ended(h)
		}
	}
	return h.err
}

// release reports whether the tenure is over, and how it ended; or why it is not.
func (h *Held) release(ctx context.Context) (over bool, err error) {
	l := h.lock
	heir, cleared := l.heir(h), false
	doubt := h.pending.ID != (TxnID{}) // left by an earlier Release
	for {
		if h.pending.ID == (TxnID{}) {
			h.pending = h.passOn(heir, cleared)
		}
		t := h.pending
		_, err := Apply(ctx, l.reg, t)
		if err == nil {
			return true, nil
		}
		var conflict *ConflictError
		if !errors.As(err, &conflict) {
			if !errors.Is(err, ErrUnknownOutcome) {
				h.pending = Txn{} // it will never be applied
			}
			return false, err
		}
		// Only an answer about the owner's record leaves it open whether t was applied: it
		// changes that record, so while its condition on it holds it was not.
		switch t.Then[conflict.Index].Key {
		case l.owner():
			return h.moved(ctx, doubt || errors.Is(err, ErrUnknownOutcome), err)
		case h.place:
			cleared = true // the session has ended, or somebody took the place away
		default:
			heir = Entry{} // it left the line; who is next will see that the lock is free
		}
		h.pending = Txn{}
	}
}

// passOn returns the release that gives the lock to heir, or frees it if there is none.
func (h *Held) passOn(heir Entry, cleared bool) Txn {
	t := Txn{ID: NewTxnID()}
	next := lockRecord{}
	if heir.Key != "" {
		next = lockRecord{Session: heir.Owner, Place: heir.Key.Name()}
	}
	t.Then = append(t.Then, Set(h.lock.owner(), h.rev, next.encode()))
	if !cleared {
		t.Then = append(t.Then, Delete(h.place, h.placed))
	}
	if heir.Key != "" {
		// Written, not only compared: one who leaves the line at this moment deletes the
		// place as it was, and so learns that the lock has come to it.
		t.Then = append(t.Then, Set(heir.Key, heir.Modified, lockPlace))
	}
	return t
}

// moved tells what it means that the owner's record has changed since h was acquired,
// for which the release was refused; doubt, that an earlier request may not have been.
func (h *Held) moved(ctx context.Context, doubt bool, refusal error) (over bool, err error) {
	if doubt {
		// Nobody takes the lock from a session that lives. If this one does, it was h's own
		// release that changed the record.
		_, err := Apply(ctx, h.lock.reg, Txn{If: []Cond{Alive(h.session.ID())}})
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, ErrConflict):
			return false, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
	}
	return true, fmt.Errorf("%w: the lock has passed to another: %w", ErrSessionLost, refusal)
}

// lockRecord is what is stored in the owner's record, and, without session and place, in
// each place. It tells records of a lock from others, and from those of a format to come.
type lockRecord struct {
	Lock    int       `json:"lock"`
	Session SessionID `json:"session,omitempty"`
	Place   string    `json:"place,omitempty"`
}

const lockFormat = 1

// lockPlace is the value of every place.
var lockPlace = lockRecord{}.encode()

func (r lockRecord) encode() []byte {
	r.Lock = lockFormat
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and a number
	}
	return b
}

// decodeLockRecord returns the record at e, or an error that names the key and the rule
// that it breaks.
func decodeLockRecord(e Entry) (lockRecord, error) {
	var r lockRecord
	fail := func(rule string, args ...any) (lockRecord, error) {
		return lockRecord{}, fmt.Errorf("%w: %s: %s", ErrLockRecord, e.Key, fmt.Sprintf(rule, args...))
	}
	if !e.Key.Owned() && e.Key.Name() != lockOwner {
		return fail("there can only be %q and places, which begin with a tilde", lockOwner)
	}
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return fail("the value is not a lock's JSON: %v", err)
	}
	isOwner := !e.Key.Owned()
	place := e.Key.Dir().Join(r.Place)
	switch {
	case r.Lock == 0:
		return fail(`the value has no "lock"`)
	case r.Lock != lockFormat:
		return fail("format %d, this program knows %d", r.Lock, lockFormat)
	case !isOwner && (r.Session != "" || r.Place != ""):
		return fail("a place names no session or place")
	case (r.Session == "") != (r.Place == ""):
		return fail("a holder is named by its session and its place, or neither")
	case r.Place != "" && (place.Name() != r.Place || !place.Owned() || CheckKey(place) != nil):
		return fail("%q is not the name of a place", r.Place)
	}
	return r, nil
}

const lockOwner = "owner"

func (l *Lock) owner() Key { return l.dir.Join(lockOwner) }

// newPlace draws the key of a place. It is never used again, so that a place that is gone
// is gone for good.
func (l *Lock) newPlace() Key { return l.dir.Join("~" + rand.Text()) }

func checkLock(dir Key) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	return CheckKey(dir.Join("~" + rand.Text())) // the longest that it will hold
}

// sessionOver is the error of a session that has ended by whatever means.
func sessionOver(s Session) error {
	err := s.Err()
	if errors.Is(err, ErrSessionLost) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSessionLost, err)
}
