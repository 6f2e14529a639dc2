package registry

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// claim is one call of Acquire. It has a goroutine of its own: a commit that is under way
// when the call is given up has to be seen through, as its outcome may be the lock.
type claim struct {
	lock    *Lock
	session Session
	ctx     context.Context // of its calls to the registry
	cancel  context.CancelCauseFunc

	wake    chan struct{} // one slot: look at the view again. Nudges merge
	granted chan *Held    // no slot: Acquire takes what is sent, or run has to pass it on
	givenUp chan struct{} // closed when Acquire wants it no more
	done    chan struct{} // closed at the end, after err was set
	err     error
	placed  Rev // when place was written, as far as that is known

	// Guarded by lock.mu, for the follower looks at them.
	place   Key  // in line; empty if it never was
	seen    bool // the view has had place
	doubted bool // a request to create place may still be under way
	leaving bool // it wants the lock no more
	tried   int  // the news on which it was refused, if any
}

var errGivenUp = errors.New("given up")

// claim begins a claim of s.
func (l *Lock) claim(s Session) (*claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return nil, ErrClosed
	}
	c := &claim{
		lock:    l,
		session: s,
		wake:    make(chan struct{}, 1),
		granted: make(chan *Held),
		givenUp: make(chan struct{}),
		done:    make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancelCause(l.ctx)
	l.claims[c] = struct{}{}
	l.follow()
	l.settling.Go(c.run)
	return c, nil
}

// giveUp ends c, and waits for its place to be gone, but not for long.
func (c *claim) giveUp() {
	c.lock.mu.Lock()
	c.leaving = true
	c.lock.mu.Unlock()
	close(c.givenUp)
	patience := time.NewTimer(withdrawal)
	defer patience.Stop()
	select {
	case <-c.done:
	case <-patience.C: // run goes on with it
	}
}

func (c *claim) run() {
	defer close(c.done)
	defer c.cancel(nil)
	h, err := c.compete()
	if err == nil {
		select {
		case c.granted <- h:
			c.forget()
			return
		case <-c.givenUp:
			err = errGivenUp
		case <-c.lock.closed:
			err = ErrClosed
		case <-c.ctx.Done():
			err = context.Cause(c.ctx)
		}
	}
	c.err = c.leave(h, err)
	c.forget()
}

func (c *claim) forget() {
	c.lock.mu.Lock()
	defer c.lock.mu.Unlock()
	delete(c.lock.claims, c)
}

// leave gives up what c has, because of err: the lock, or a place in line. It returns err.
func (c *claim) leave(h *Held, err error) error {
	c.lock.mu.Lock()
	c.leaving = true
	place, doubted := c.place, c.doubted
	c.lock.mu.Unlock()
	if errors.Is(err, ErrSessionLost) {
		return err // all went with the session
	}
	ctx, stop := withSession(c.ctx, c.session)
	defer stop()
	var left error
	switch {
	case h != nil:
		left = h.Release(ctx)
	case place != "":
		left = c.lock.withdraw(ctx, c.session, place, c.placed)
		if doubted {
			c.lock.haunt(place, c.session)
		}
	}
	if left != nil && ctx.Err() == nil {
		return fmt.Errorf("%w (leave the line: %w)", err, left)
	}
	return err
}

// compete returns the lock, or why it is not to be had. In that case it may be in line.
func (c *claim) compete() (*Held, error) {
	for {
		if err := c.stopped(); err != nil {
			return nil, err
		}
		p, err := c.look()
		switch {
		case errors.Is(err, ErrHeld):
			err = c.confirm(p)
		case err != nil: // it is returned below
		case p.step == lockHold:
			return p.held, nil
		case p.step == lockTake:
			var h *Held
			if h, err = c.take(p); h != nil {
				return h, nil
			}
		case p.step == lockJoin:
			err = c.join()
		default:
			c.await(p)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (c *claim) stopped() error {
	select {
	case <-c.givenUp:
		return errGivenUp
	case <-c.lock.closed:
		return ErrClosed
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	default:
		return nil
	}
}

// prospect is what c has found in the view.
type prospect struct {
	step   lockStep
	held   *Held     // for lockHold
	owner  Entry     // the record to be changed for lockTake
	holder SessionID // the session that must have ended for lockTake
	place  Entry     // in line, for lockTake. Zero for one that is not
	news   int
	tried  bool // it was refused on this news
}

func (c *claim) look() (prospect, error) {
	l := c.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &l.view
	step, err := c.step()
	p := prospect{
		step:   step,
		owner:  v.owner,
		holder: v.holder,
		place:  v.places[c.place],
		news:   v.news,
		tried:  c.tried != 0 && c.tried == v.news,
	}
	if step == lockHold {
		p.held = c.hold(v.owner.Modified, v.owner.Modified)
	}
	return p, err
}

// step is what to do next. lock.mu is held.
func (c *claim) step() (lockStep, error) {
	if c.leaving {
		return lockWait, nil
	}
	v := &c.lock.view
	step, err := v.step(c.session.ID(), c.place, c.seen)
	switch {
	case step == lockTake && c.tried == v.news:
		return lockWait, nil
	case errors.Is(err, ErrHeld) && c.lock.unwanted(v.held):
		return lockWait, nil // it will be passed on
	}
	return step, err
}

// hold is what c gets when it has the lock since rev. lock.mu is held.
func (c *claim) hold(rev, placed Rev) *Held {
	h := c.lock.hold(c.session, c.place, rev, placed)
	h.doubted = c.doubted
	return h
}

// await waits for news, or until c is stopped. One that was refused is not to depend on
// news: if somebody deleted the place of a holder that lives, none need come.
func (c *claim) await(p prospect) {
	var again <-chan time.Time
	if p.tried {
		timer := time.NewTimer(c.session.TTL())
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-c.wake:
	case <-c.givenUp:
	case <-c.lock.closed:
	case <-c.ctx.Done():
	case <-again:
		c.lock.mu.Lock()
		c.tried = 0
		c.lock.mu.Unlock()
	}
}

// join gets c in line.
func (c *claim) join() error {
	place := c.enter()
	w := &witness{Registry: c.lock.reg}
	rev, err := Apply(c.ctx, w, Txn{Then: []Op{c.createPlace(place)}})
	c.placed = rev
	if w.doubt {
		c.lock.mu.Lock()
		c.doubted = true
		c.lock.mu.Unlock()
	}
	if errors.Is(err, ErrConflict) {
		return nil // the place is there: who but c made it? The lock came to it meanwhile
	}
	return err
}

// enter draws a place, before it is committed, so that the follower knows it when it hears
// of it.
func (c *claim) enter() Key {
	l := c.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.doubted {
		l.hauntLocked(c.place, c.session)
	}
	c.place, c.seen, c.doubted = l.newPlace(), false, false
	return c.place
}

func (c *claim) createPlace(place Key) Op {
	return CreateOwned(place, lockPlace, c.session.ID())
}

// take tries to get the lock. Without an error it may have failed: then c is in line.
func (c *claim) take(p prospect) (*Held, error) {
	l := c.lock
	var t Txn
	if p.holder != "" {
		t.If = append(t.If, Dead(p.holder))
	}
	place, inLine := p.place.Key, p.place.Key != ""
	if inLine {
		t.If = append(t.If, At(place, p.place.Modified))
	} else {
		place = c.enter()
		t.Then = append(t.Then, c.createPlace(place))
	}
	record := lockRecord{Session: c.session.ID(), Place: place.Name()}.encode()
	if p.owner.Key == "" {
		t.Then = append(t.Then, Create(l.owner(), record))
	} else {
		t.Then = append(t.Then, Set(l.owner(), p.owner.Modified, record))
	}
	rev, err := Apply(c.ctx, l.reg, t)
	switch {
	case err == nil:
		placed := rev
		if inLine {
			placed = p.place.Modified
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.view.floor = max(l.view.floor, rev.Seq)
		return c.hold(rev, placed), nil
	case !errors.Is(err, ErrConflict):
		return nil, err
	case !inLine:
		return nil, c.join() // who tries once more without a place could be outrun for ever
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.tried = p.news
	return nil, nil
}

// confirm returns ErrHeld if the session really holds the lock.
func (c *claim) confirm(p prospect) error {
	l := c.lock
	// The view may not have come to the end of a tenure that another Lock has released.
	e, err := l.read(c.ctx, l.owner())
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case e.Modified == p.owner.Modified:
		return fmt.Errorf("%w: %s since %d", ErrHeld, c.session.ID(), e.Modified.Seq)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.floor = max(l.view.floor, p.owner.Modified.Seq+1)
	return nil
}

// witness is a registry that remembers whether a transaction was left in doubt.
type witness struct {
	Registry
	doubt bool
}

func (w *witness) Txn(ctx context.Context, t Txn) (Rev, error) {
	rev, err := w.Registry.Txn(ctx, t)
	w.doubt = w.doubt || errors.Is(err, ErrUnknownOutcome)
	return rev, err
}

// withSession returns a context that ends with ctx, with the session, or when stop is
// called.
func withSession(ctx context.Context, s Session) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.Lost():
			cancel(sessionOver(s))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}
