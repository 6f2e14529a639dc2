package registry

import (
	"context"
	"errors"
	"fmt"
)

// follow keeps l.view up to date until l is closed or the registry refuses. l.mu is held.
func (l *Lock) follow() {
	if l.following {
		return
	}
	l.following = true
	l.view = lockView{dir: l.dir, floor: l.view.floor, news: l.view.news}
	l.follower.Go(func() {
		err := Follow(l.ctx, l.reg, l.dir, l.heard)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.following = false
		l.view.failed = fmt.Errorf("follow: %w", err)
		l.nudge()
	})
}

func (l *Lock) heard(b Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.apply(b)
	l.nudge()
	l.sweep()
	return nil
}

// nudge wakes the claims that have something to do. l.mu is held.
func (l *Lock) nudge() {
	for c := range l.claims {
		if _, inLine := l.view.places[c.place]; inLine {
			c.seen = true
		}
		if step, err := c.step(); step == lockWait && err == nil {
			continue
		}
		select {
		case c.wake <- struct{}{}:
		default: // it has been told already
		}
	}
}

// unwanted reports whether the lock, if it has come to that place, is to be passed on: an
// Acquire that was in line there has given up. l.mu is held.
func (l *Lock) unwanted(place Key) bool {
	if l.ghosts[place] != nil {
		return true
	}
	for c := range l.claims {
		if c.place == place {
			return c.leaving
		}
	}
	return false
}

// heir returns the place that is first in line behind h, or the zero Entry. The view may
// not know of h yet, so h's own place could be first in it.
func (l *Lock) heir(h *Held) Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view.err() != nil {
		return Entry{}
	}
	return l.view.oldest(h.place)
}

// ended notes that the tenure h is over: until the view has come to its end, it is not to
// be asked.
func (l *Lock) ended(h *Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.floor = max(l.view.floor, h.rev.Seq+1)
	if h.doubted {
		l.hauntLocked(h.place, h.session)
	}
}

// withdraw takes place, of s, out of the line: it is deleted, or if the lock was passed on
// to it, released. placed is when it was written before it could get the lock, zero if that
// is not known.
func (l *Lock) withdraw(ctx context.Context, s Session, place Key, placed Rev) error {
	for {
		if placed.IsZero() {
			// In this order: one who passes the lock on writes both, so if the owner's
			// record does not name the place yet, it will no longer be as it was read.
			e, err := l.read(ctx, place)
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			h, err := l.heldAt(ctx, s, place)
			if err != nil {
				return err
			}
			if h != nil {
				return h.Release(ctx)
			}
			placed = e.Modified
		}
		_, err := Apply(ctx, l.reg, Txn{Then: []Op{Delete(place, placed)}})
		if !errors.Is(err, ErrConflict) {
			return err
		}
		placed = Rev{}
	}
}

// heldAt returns the lock if the owner's record names place, of s, else nil.
func (l *Lock) heldAt(ctx context.Context, s Session, place Key) (*Held, error) {
	e, err := l.read(ctx, l.owner())
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := decodeLockRecord(e)
	if err != nil || r.Place != place.Name() {
		return nil, nil // what is no lock's record names no place
	}
	return l.hold(s, place, e.Modified, e.Modified), nil
}

// read is a fresh Get that tries until there is an answer.
func (l *Lock) read(ctx context.Context, key Key) (Entry, error) {
	var pause backoff
	for {
		e, err := l.reg.Get(ctx, key, ReadOptions{Fresh: true})
		if err == nil || !transient(err) {
			return e, err
		}
		if cause := pause.wait(ctx); cause != nil {
			return Entry{}, fmt.Errorf("%w: %w", cause, err)
		}
	}
}

// ghost is a place that is not in line any more. A request to create it that was held up
// on its way may still put it back, and then the lock would come to a place that nobody
// waits in.
type ghost struct {
	session Session
	busy    bool // it is being taken away
}

func (l *Lock) haunt(place Key, s Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hauntLocked(place, s)
}

func (l *Lock) hauntLocked(place Key, s Session) {
	l.ghosts[place] = &ghost{session: s}
	l.sweep()
}

// sweep takes away the ghosts that have come back. Once its session has ended, none can.
// l.mu is held.
func (l *Lock) sweep() {
	for place, g := range l.ghosts {
		_, back := l.view.places[place]
		switch {
		case g.session.Err() != nil:
			delete(l.ghosts, place)
		case !back || g.busy || l.isClosed:
		default:
			g.busy = true
			began := l.view.news
			l.settling.Go(func() {
				ctx, stop := withSession(l.ctx, g.session)
				defer stop()
				// On an error that is not the session's end, the next news bring another try.
				_ = l.withdraw(ctx, g.session, place, Rev{})
				l.mu.Lock()
				defer l.mu.Unlock()
				g.busy = false
				if l.view.news != began {
					l.sweep() // the place may have been created again after withdraw read it
				}
			})
		}
	}
}
