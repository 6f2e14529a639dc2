package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
)

// acquirer is one call of Acquire. It has a goroutine of its own, which outlives the call if
// that gives up during a commit: the commit may turn out to have acquired the lock.
type acquirer struct {
	lock    *Lock
	session registry.Session
	ctx     context.Context // of its calls to the registry
	cancel  context.CancelCauseFunc

	wake    chan struct{} // one slot: the view has changed. Signals merge
	granted chan *Held    // no slot: either Acquire receives the lock, or run passes it on
	givenUp chan struct{} // closed when Acquire gives up
	done    chan struct{} // closed at the end, after err was set
	err     error
	placed  registry.Rev // when place was written; zero if unknown

	// Guarded by lock.mu, since the follower reads them.
	place     registry.Key // in the queue; empty before the first try to join it
	seen      bool         // the view has contained place
	doubted   bool         // a request to create place may still be under way
	leaving   bool         // it no longer wants the lock
	refusedAt int          // the version of the view by which takeLock was refused; 0 if none
}

var errGivenUp = errors.New("given up")

// startAcquirer starts an acquirer for s.
func (l *Lock) startAcquirer(s registry.Session) (*acquirer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return nil, registry.ErrClosed
	}
	a := &acquirer{
		lock:    l,
		session: s,
		wake:    make(chan struct{}, 1),
		granted: make(chan *Held),
		givenUp: make(chan struct{}),
		done:    make(chan struct{}),
	}
	a.ctx, a.cancel = context.WithCancelCause(l.ctx)
	l.acquirers[a] = struct{}{}
	l.follow()
	l.settling.Go(a.run)
	return a, nil
}

// giveUp ends a, and waits for its place to be deleted, at most for giveUpTimeout.
func (a *acquirer) giveUp() {
	a.lock.mu.Lock()
	a.leaving = true
	a.lock.mu.Unlock()
	close(a.givenUp)
	timeout := time.NewTimer(giveUpTimeout)
	defer timeout.Stop()
	select {
	case <-a.done:
	case <-timeout.C: // run continues to delete it
	}
}

func (a *acquirer) run() {
	defer close(a.done)
	defer a.cancel(nil)
	h, err := a.compete()
	if err == nil {
		select {
		case a.granted <- h:
			a.unregister()
			return
		case <-a.givenUp:
			err = errGivenUp
		case <-a.lock.closed:
			err = registry.ErrClosed
		case <-a.ctx.Done():
			err = context.Cause(a.ctx)
		}
	}
	a.err = a.leaveQueue(h, err)
	a.unregister()
}

func (a *acquirer) unregister() {
	a.lock.mu.Lock()
	defer a.lock.mu.Unlock()
	delete(a.lock.acquirers, a)
}

// leaveQueue releases the lock if a holds it as h, else deletes its place in the queue. It
// returns err, the reason for leaving.
func (a *acquirer) leaveQueue(h *Held, err error) error {
	a.lock.mu.Lock()
	a.leaving = true
	place, doubted := a.place, a.doubted
	a.lock.mu.Unlock()
	if errors.Is(err, registry.ErrSessionLost) {
		return err // the place has expired with the session
	}
	ctx, stop := withSession(a.ctx, a.session)
	defer stop()
	var left error
	switch {
	case h != nil:
		left = h.Release(ctx)
	case place != "":
		left = a.lock.removePlace(ctx, a.session, place, a.placed)
		if doubted {
			a.lock.trackStray(place, a.session)
		}
	}
	if left != nil && ctx.Err() == nil {
		return fmt.Errorf("%w (leave the queue: %w)", err, left)
	}
	return err
}

// compete returns the lock, or the error that prevents it. After an error, a may still be
// in the queue.
func (a *acquirer) compete() (*Held, error) {
	for {
		if err := a.stopCause(); err != nil {
			return nil, err
		}
		p, err := a.decide()
		switch {
		case errors.Is(err, ErrHeld):
			err = a.confirmHeld(p)
		case err != nil: // returned below
		case p.step == lockHold:
			return p.held, nil
		case p.step == lockTake:
			var h *Held
			if h, err = a.takeLock(p); h != nil {
				return h, nil
			}
		case p.step == lockJoin:
			err = a.joinQueue()
		default:
			a.awaitChange(p)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (a *acquirer) stopCause() error {
	select {
	case <-a.givenUp:
		return errGivenUp
	case <-a.lock.closed:
		return registry.ErrClosed
	case <-a.ctx.Done():
		return context.Cause(a.ctx)
	default:
		return nil
	}
}

// decision is the next step of an acquirer, with the state of the view that it rests on.
type decision struct {
	step    step
	held    *Held              // for lockHold
	owner   registry.Entry     // the record to be changed for lockTake
	holder  registry.SessionID // the session that must have ended for lockTake
	place   registry.Entry     // in the queue, for lockTake; zero if there is none
	version int
	refused bool // takeLock was refused by this version
}

func (a *acquirer) decide() (decision, error) {
	l := a.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.view
	step, err := a.nextStep()
	p := decision{
		step:    step,
		owner:   v.owner,
		holder:  v.holder,
		place:   v.places[a.place],
		version: v.version,
		refused: a.refusedAt != 0 && a.refusedAt == v.version,
	}
	if step == lockHold {
		placed := p.place.Modified
		if placed.IsZero() {
			placed = a.placed
		}
		p.held = a.newHeld(v.owner.Modified, placed)
	}
	return p, err
}

// nextStep returns the next step of a. lock.mu is held.
func (a *acquirer) nextStep() (step, error) {
	if a.leaving {
		return lockWait, nil
	}
	v := &a.lock.view
	step, err := v.stepFor(a.session.ID(), a.place, a.seen)
	switch {
	case step == lockTake && a.refusedAt == v.version:
		return lockWait, nil
	case errors.Is(err, ErrHeld) && a.lock.isUnwanted(v.held):
		return lockWait, nil // the Lock will pass it on
	}
	return step, err
}

// newHeld returns the lock, which a has held since rev. lock.mu is held.
func (a *acquirer) newHeld(rev, placed registry.Rev) *Held {
	h := a.lock.newHeld(a.session, a.place, rev, placed)
	h.doubted = a.doubted
	return h
}

// awaitChange waits for a change of the view, or until a is stopped. After a refusal it also
// ends after a TTL: if another writer deleted the place of a living holder, the end of that
// holder's session changes nothing in the directory.
func (a *acquirer) awaitChange(p decision) {
	var again <-chan time.Time
	if p.refused {
		timer := time.NewTimer(a.session.TTL())
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-a.wake:
	case <-a.givenUp:
	case <-a.lock.closed:
	case <-a.ctx.Done():
	case <-again:
		a.lock.mu.Lock()
		a.refusedAt = 0
		a.lock.mu.Unlock()
	}
}

// joinQueue creates a place of a in the queue.
func (a *acquirer) joinQueue() error {
	place := a.drawPlace()
	w := &doubtRecorder{Registry: a.lock.reg}
	rev, err := registry.Apply(a.ctx, w, registry.Txn{Then: []registry.Op{a.createPlace(place)}})
	a.placed = rev
	if w.doubt {
		a.lock.mu.Lock()
		a.doubted = true
		a.lock.mu.Unlock()
	}
	if errors.Is(err, registry.ErrConflict) { // only a creates this place: it exists, and another writer has written it
		var e registry.Entry
		if e, err = a.lock.readFresh(a.ctx, place); errors.Is(err, registry.ErrNotFound) {
			return nil
		}
		a.placed = e.Modified
	}
	return err
}

// drawPlace sets a.place to a new key before that is created, so that the follower can match
// it with the first batch that contains it.
func (a *acquirer) drawPlace() registry.Key {
	l := a.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.doubted {
		l.trackStrayLocked(a.place, a.session)
	}
	a.place, a.seen, a.doubted = l.newPlace(), false, false
	return a.place
}

func (a *acquirer) createPlace(place registry.Key) registry.Op {
	return registry.CreateOwned(place, placeValue, a.session.ID())
}

// takeLock tries to acquire the lock. If it returns neither a lock nor an error, the try was
// refused, and a is in the queue.
func (a *acquirer) takeLock(p decision) (*Held, error) {
	l := a.lock
	var t registry.Txn
	if p.holder != "" {
		t.If = append(t.If, registry.Dead(p.holder))
	}
	place, inLine := p.place.Key, p.place.Key != ""
	if inLine {
		t.If = append(t.If, registry.At(place, p.place.Modified))
	} else {
		place = a.drawPlace()
		t.Then = append(t.Then, a.createPlace(place))
	}
	record := ownerRecord{Session: a.session.ID(), Place: place.Name()}.encode()
	if p.owner.Key == "" {
		t.Then = append(t.Then, registry.Create(l.owner(), record))
	} else {
		t.Then = append(t.Then, registry.Set(l.owner(), p.owner.Modified, record))
	}
	rev, err := registry.Apply(a.ctx, l.reg, t)
	switch {
	case err == nil:
		placed := rev
		if inLine {
			placed = p.place.Modified
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.view.floor = max(l.view.floor, rev.Seq)
		return a.newHeld(rev, placed), nil
	case !errors.Is(err, registry.ErrConflict):
		return nil, err
	case !inLine:
		return nil, a.joinQueue() // without a place, newcomers could overtake a for ever
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a.refusedAt = p.version
	return nil, nil
}

// confirmHeld returns ErrHeld if a fresh read confirms that the session holds the lock.
func (a *acquirer) confirmHeld(p decision) error {
	l := a.lock
	// Another Lock of the session may have released it, and the view lag behind.
	e, err := l.readFresh(a.ctx, l.owner())
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		return err
	case e.Modified == p.owner.Modified:
		return fmt.Errorf("%w: %s since %d", ErrHeld, a.session.ID(), e.Modified.Seq)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.floor = max(l.view.floor, p.owner.Modified.Seq+1)
	return nil
}

// doubtRecorder is a registry that records whether the outcome of a transaction was unknown.
type doubtRecorder struct {
	registry.Registry
	doubt bool
}

func (w *doubtRecorder) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	rev, err := w.Registry.Txn(ctx, t)
	w.doubt = w.doubt || errors.Is(err, registry.ErrUnknownOutcome)
	return rev, err
}

// withSession returns a context that ends with ctx, with the session, or when stop is
// called.
func withSession(ctx context.Context, s registry.Session) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.Lost():
			cancel(sessionEndError(s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}
