// Package lock is a fair lock on a directory of a registry, with a fencing token. It is the same for every store.
package lock

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// The errors of a lock, besides those of its registry.
var (
	// ErrHeld: the session holds the lock already. Waiting would be waiting for itself.
	ErrHeld = errors.New("lock held by the same session")
	// ErrRecord: the directory of a lock contains a key that is not a lock's. No session
	// acquires the lock until that key is deleted; the current holder keeps it.
	ErrRecord = errors.New("not a lock's record")
)

// giveUpTimeout is how long Acquire, when its context ends, waits for its place in the queue
// to be deleted, before it leaves that to the Lock.
const giveUpTimeout = time.Second

// Lock is a fair lock on a directory of a registry, with a fencing token.
//
// A session holds the lock from the commit of Acquire to the commit of Release, or to the
// end of the session. Waiting sessions form a queue, in the order in which their places in
// it were committed. The lock passes to the first in the queue whose session lives. A
// session without a place acquires the lock only if it is free and the queue is empty, as
// far as that session can see: a place committed just before may escape it.
//
// Acquiring a free lock is one commit, and so is releasing it. A release names the first in
// the queue as the next holder, which observes that in its watch. So a contended lock costs
// each session one commit to join the queue and one to release the lock; the other waiting
// sessions commit nothing.
//
// A Lock follows its directory with one watch, from the first Acquire to Close. A process
// should therefore create one Lock for each directory and reuse it. The directory must not
// contain other keys:
//
//	dir/owner   {"lock":1,"session":"...","place":"~..."}, or without session and place if
//	            the lock is free. Written only when the holder changes; never deleted
//	dir/~...    a place, of the holder or of a waiting session. Owned by that session
//
// # Not promised
//
// The holder may still be running when the next one begins: a process can be paused, and its
// session expire, between a check of Lost and a write. Guard writes to the registry under
// the lock with Held.Guard, and send Held.Fence to other stores.
type Lock struct {
	reg registry.Registry
	dir registry.Key

	ctx    context.Context // of all calls to reg; ends with Close
	cancel context.CancelCauseFunc
	closed chan struct{} // closed when Close begins

	mu        sync.Mutex
	isClosed  bool
	follower  sync.WaitGroup
	following bool
	view      view
	acquirers map[*acquirer]struct{}       // one for each pending Acquire
	settling  sync.WaitGroup               // goroutines of acquirers and of removeStrays
	strays    map[registry.Key]*strayPlace // removed places that a delayed request may create again
}

// New returns the lock on dir. It does not call the registry before the first Acquire.
func New(reg registry.Registry, dir registry.Key) *Lock {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Lock{
		reg:       reg,
		dir:       dir,
		ctx:       ctx,
		cancel:    cancel,
		closed:    make(chan struct{}),
		view:      view{dir: dir},
		acquirers: make(map[*acquirer]struct{}),
		strays:    make(map[registry.Key]*strayPlace),
	}
}

// Acquire waits until s, a session of the lock's registry, holds the lock.
//
// While the registry cannot be reached, Acquire retries. It fails with
//
//   - the cause of ctx, when that ends;
//   - ErrSessionLost, at once, when s is lost or closed;
//   - ErrHeld, when s holds the lock, or another Acquire of s gets it first;
//   - ErrRecord, when the directory contains a key that is not a lock's;
//   - ErrClosed, after Close;
//   - the error of the registry, when a retry cannot succeed, such as ErrPermission.
//
// A failed Acquire leaves the queue. If the registry cannot be reached when ctx ends,
// Acquire returns within a second, and the Lock deletes the place as soon as the registry
// can be reached; if the lock has passed to that place meanwhile, it is passed on.
func (l *Lock) Acquire(ctx context.Context, s registry.Session) (*Held, error) {
	h, err := l.acquire(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", l.dir, err)
	}
	return h, nil
}

func (l *Lock) acquire(ctx context.Context, s registry.Session) (*Held, error) {
	if err := checkDir(l.dir); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.Err() != nil {
		return nil, sessionEndError(s)
	}
	a, err := l.startAcquirer(s)
	if err != nil {
		return nil, err
	}
	select {
	case h := <-a.granted:
		return h, nil
	case <-a.done:
		return nil, a.err
	case <-s.Lost():
		// The place expires with the session: there is nothing to wait for.
		err = sessionEndError(s)
		a.cancel(err)
		<-a.done
		return nil, err
	case <-ctx.Done():
		a.giveUp()
		return nil, context.Cause(ctx)
	}
}

// Close ends the use of l: pending calls of Acquire return ErrClosed, and their places in
// the queue are deleted. When Close returns, no goroutine of l is left. If ctx ends first,
// places that could not be deleted stay until their sessions end. A held lock stays held
// until it is released. Closing twice is legal.
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
	l.cancel(registry.ErrClosed)
	<-settled
	l.follower.Wait()
	return err
}

// Held is a lock held by the session that Acquire was called with.
type Held struct {
	lock    *Lock
	session registry.Session
	rev     registry.Rev // of the commit that acquired the lock
	place   registry.Key
	placed  registry.Rev // when place was written

	doubted bool // a request to create place may still be under way

	turn    chan struct{} // one slot, occupied by the Release that is under way
	over    bool          // the lock is no longer held
	err     error         // of the last Release
	pending registry.Txn  // a release that may have been applied
}

func (l *Lock) newHeld(s registry.Session, place registry.Key, rev, placed registry.Rev) *Held {
	return &Held{lock: l, session: s, place: place, rev: rev, placed: placed, turn: make(chan struct{}, 1)}
}

// Fence returns the number of the commit that acquired the lock. It is greater than that of
// every earlier holder. A store that records the highest fence it has received, and refuses
// lower ones, is protected from holders that have lost the lock without noticing.
func (h *Held) Fence() uint64 { return h.rev.Seq }

// Guard returns the condition that the lock has neither been released nor passed to another
// session since this Acquire. Add it to every Txn that is valid only under the lock.
func (h *Held) Guard() registry.Cond { return registry.At(h.lock.owner(), h.rev) }

// Lost is closed when the session of the holder is lost or closed. Another session may hold
// the lock soon after.
func (h *Held) Lost() <-chan struct{} { return h.session.Lost() }

// Release releases the lock, and passes it to the first in the queue if there is one. It
// never releases the lock of a later holder.
//
// Nil means that no other session held the lock between Acquire and Release.
// ErrSessionLost means that the session has ended and that another may have held the lock
// since. In both cases the lock is no longer held, and a further Release returns the same.
//
// After any other error the lock may still be held: the request may have been sent
// (ErrUnknownOutcome), was not sent (ErrNotApplied), or was refused. Call Release again
// then: a lock that is not released stays held until the session ends. So give Release a
// context of its own, not the one that has just ended.
func (h *Held) Release(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return fmt.Errorf("release %s: %w: %w", h.lock.dir, registry.ErrNotApplied, context.Cause(ctx))
	}
	if !h.over {
		h.over, h.err = h.release(ctx)
		if h.err != nil {
			h.err = fmt.Errorf("release %s: %w", h.lock.dir, h.err)
		}
		if h.over {
			h.lock.noteReleased(h)
		}
	}
	return h.err
}

// release reports whether the lock is no longer held. The error is nil only if it was
// released by h.
func (h *Held) release(ctx context.Context) (over bool, err error) {
	l := h.lock
	next, cleared := l.nextInQueue(h), false
	doubt := h.pending.ID != (registry.TxnID{}) // left by an earlier Release
	for {
		if h.pending.ID == (registry.TxnID{}) {
			h.pending = h.releaseTxn(next, cleared)
		}
		t := h.pending
		_, err := registry.Apply(ctx, l.reg, t)
		if err == nil {
			return true, nil
		}
		var conflict *registry.ConflictError
		if !errors.As(err, &conflict) {
			if !errors.Is(err, registry.ErrUnknownOutcome) {
				h.pending = registry.Txn{} // it cannot be applied later
			}
			return false, err
		}
		// t changes the owner's record. So while its condition on that record holds, t was
		// not applied. A conflict on next is reported before that condition is compared.
		switch keyOf(t, conflict.Index) {
		case l.owner():
			return h.ownerChanged(ctx, doubt || errors.Is(err, registry.ErrUnknownOutcome), err)
		case h.place:
			cleared = true // the session has ended, or another writer deleted the place
		default:
			doubt = doubt || errors.Is(err, registry.ErrUnknownOutcome)
			next = registry.Entry{} // it left the queue; the one behind it will see a free lock
		}
		h.pending = registry.Txn{}
	}
}

// releaseTxn returns the transaction that passes the lock to the place next, or frees the
// lock if next is zero. cleared means that the place of h no longer exists.
func (h *Held) releaseTxn(next registry.Entry, cleared bool) registry.Txn {
	t := registry.Txn{ID: registry.NewTxnID()}
	record := ownerRecord{}
	if next.Key != "" {
		record = ownerRecord{Session: next.Owner, Place: next.Key.Name()}
		t.If = append(t.If, registry.At(next.Key, next.Modified))
	}
	t.Then = append(t.Then, registry.Set(h.lock.owner(), h.rev, record.encode()))
	if !cleared {
		t.Then = append(t.Then, registry.Delete(h.place, h.placed))
	}
	return t
}

// keyOf returns the key of an item of t, which is not a condition on a session.
func keyOf(t registry.Txn, item int) registry.Key {
	if item < len(t.If) {
		return t.If[item].Key
	}
	return t.Then[item-len(t.If)].Key
}

// ownerChanged decides how a release ended that was refused because the owner's record has
// changed since h was acquired. doubt means that an earlier request may have been applied.
func (h *Held) ownerChanged(ctx context.Context, doubt bool, refusal error) (over bool, err error) {
	if doubt {
		// No other session takes the lock from one that lives. If this session lives, h's own
		// release changed the record.
		_, err := registry.Apply(ctx, h.lock.reg, registry.Txn{If: []registry.Cond{registry.Alive(h.session.ID())}})
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, registry.ErrConflict):
			return false, fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, err)
		}
	}
	return true, fmt.Errorf("%w: the lock has passed to another: %w", registry.ErrSessionLost, refusal)
}

// ownerRecord is the value of the owner's record and, without session and place, of each
// place. The field Lock distinguishes it from foreign values and from later formats.
type ownerRecord struct {
	Lock    int                `json:"lock"`
	Session registry.SessionID `json:"session,omitempty"`
	Place   string             `json:"place,omitempty"`
}

const format = 1

// placeValue is the value of every place.
var placeValue = ownerRecord{}.encode()

func (r ownerRecord) encode() []byte {
	r.Lock = format
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and a number
	}
	return b
}

// decodeOwner decodes the value of e. An error names the key and the rule that it
// breaks.
func decodeOwner(e registry.Entry) (ownerRecord, error) {
	var r ownerRecord
	fail := func(rule string, args ...any) (ownerRecord, error) {
		return ownerRecord{}, fmt.Errorf("%w: %s: %s", ErrRecord, e.Key, fmt.Sprintf(rule, args...))
	}
	if !e.Key.Owned() && e.Key.Name() != ownerName {
		return fail("a lock has only the key %q and places, which begin with a tilde", ownerName)
	}
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return fail("the value is not a lock's JSON: %v", err)
	}
	isOwner := !e.Key.Owned()
	place := e.Key.Dir().Join(r.Place)
	switch {
	case r.Lock == 0:
		return fail(`the value has no "lock"`)
	case r.Lock != format:
		return fail("format %d, this program knows %d", r.Lock, format)
	case !isOwner && (r.Session != "" || r.Place != ""):
		return fail("a place names no session or place")
	case (r.Session == "") != (r.Place == ""):
		return fail("a record has both a session and a place, or neither")
	case r.Place != "" && (place.Name() != r.Place || !place.Owned() || registry.CheckKey(place) != nil):
		return fail("%q is not the name of a place", r.Place)
	}
	return r, nil
}

const ownerName = "owner"

func (l *Lock) owner() registry.Key { return l.dir.Join(ownerName) }

// newPlace draws the key of a place. Keys are never reused, so that a deleted place stays
// deleted.
func (l *Lock) newPlace() registry.Key { return l.dir.Join("~" + rand.Text()) }

func checkDir(dir registry.Key) error {
	if err := registry.CheckDir(dir); err != nil {
		return err
	}
	return registry.CheckKey(dir.Join("~" + rand.Text())) // the longest key of the directory
}

// sessionEndError returns the error of a lost or closed session, which wraps ErrSessionLost.
func sessionEndError(s registry.Session) error {
	err := s.Err()
	if errors.Is(err, registry.ErrSessionLost) {
		return err
	}
	return fmt.Errorf("%w: %w", registry.ErrSessionLost, err)
}
