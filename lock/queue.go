package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/backoff"
	"github.com/rota-dev/rota/registry"
)

// follow updates l.view until l is closed or the registry refuses. l.mu is held.
func (l *Lock) follow() {
	if l.following {
		return
	}
	l.following = true
	l.view = view{dir: l.dir, floor: l.view.floor, version: l.view.version}
	l.follower.Go(func() {
		err := registry.Follow(l.ctx, l.reg, l.dir, l.applyBatch)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.following = false
		l.view.failed = fmt.Errorf("follow: %w", err)
		l.wakeAcquirers()
	})
}

func (l *Lock) applyBatch(b registry.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.apply(b)
	l.wakeAcquirers()
	l.removeStrays()
	return nil
}

// wakeAcquirers wakes the acquirers that have a step to make. l.mu is held.
func (l *Lock) wakeAcquirers() {
	for a := range l.acquirers {
		if _, inLine := l.view.places[a.place]; inLine {
			a.seen = true
		}
		if step, err := a.nextStep(); step == lockWait && err == nil {
			continue
		}
		select {
		case a.wake <- struct{}{}:
		default: // a signal is pending
		}
	}
}

// isUnwanted reports whether the Acquire that waited at that place has given up, so that a
// lock that passes to the place is passed on. l.mu is held.
func (l *Lock) isUnwanted(place registry.Key) bool {
	if l.strays[place] != nil {
		return true
	}
	for a := range l.acquirers {
		if a.place == place {
			return a.leaving
		}
	}
	return false
}

// nextInQueue returns the first place behind h, or the zero Entry. It skips the place of h,
// which a view that lags behind may still have in the queue.
func (l *Lock) nextInQueue(h *Held) registry.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view.err() != nil {
		return registry.Entry{}
	}
	return l.view.oldest(h.place)
}

// noteReleased records that h is no longer held. A view that lags behind that change is not
// used.
func (l *Lock) noteReleased(h *Held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.floor = max(l.view.floor, h.rev.Seq+1)
	if h.doubted {
		l.trackStrayLocked(h.place, h.session)
	}
}

// removePlace deletes place, of s, from the queue, or releases the lock if that has passed
// to place. placed is the revision at which place was created; zero if unknown.
func (l *Lock) removePlace(ctx context.Context, s registry.Session, place registry.Key, placed registry.Rev) error {
	owner, fresh := l.viewedOwner(), false
	for {
		if placed.IsZero() {
			e, err := l.readFresh(ctx, place)
			if errors.Is(err, registry.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			placed = e.Modified
		}
		r, err := decodeOwner(owner)
		held := err == nil && r.Place == place.Name() // a foreign record names no place
		if held && fresh {
			return l.newHeld(s, place, owner.Modified, placed).Release(ctx)
		}
		if !held {
			err := l.deletePlace(ctx, owner, place, placed)
			if !errors.Is(err, registry.ErrConflict) {
				return err
			}
			placed = registry.Rev{}
		}
		owner, err = l.readFresh(ctx, l.owner())
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		fresh = true
	}
}

// deletePlace deletes place if owner is still the owner's record. That fails if the lock has
// passed to place meanwhile.
func (l *Lock) deletePlace(ctx context.Context, owner registry.Entry, place registry.Key, placed registry.Rev) error {
	unchanged := registry.Absent(l.owner())
	if owner.Key != "" {
		unchanged = registry.At(owner.Key, owner.Modified)
	}
	_, err := registry.Apply(ctx, l.reg, registry.Txn{If: []registry.Cond{unchanged}, Then: []registry.Op{registry.Delete(place, placed)}})
	return err
}

// viewedOwner returns the owner's record as last observed, or the zero Entry.
func (l *Lock) viewedOwner() registry.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view.owner
}

// readFresh is a Fresh Get that is retried until there is an answer.
func (l *Lock) readFresh(ctx context.Context, key registry.Key) (registry.Entry, error) {
	var pause backoff.Backoff
	for {
		e, err := l.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
		if err == nil || !registry.Retryable(err) {
			return e, err
		}
		if cause := pause.Wait(ctx); cause != nil {
			return registry.Entry{}, fmt.Errorf("%w: %w", cause, err)
		}
	}
}

// strayPlace is a place that was removed from the queue while a request to create it may
// still be under way. If that request creates it again, the lock could pass to a place at
// which no Acquire waits.
type strayPlace struct {
	session registry.Session
	busy    bool // it is being removed
}

func (l *Lock) trackStray(place registry.Key, s registry.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trackStrayLocked(place, s)
}

func (l *Lock) trackStrayLocked(place registry.Key, s registry.Session) {
	l.strays[place] = &strayPlace{session: s}
	l.removeStrays()
}

// removeStrays removes the strays that exist again. It drops those whose session has ended,
// which cannot return. l.mu is held.
func (l *Lock) removeStrays() {
	for place, g := range l.strays {
		_, exists := l.view.places[place]
		switch {
		case g.session.Err() != nil:
			delete(l.strays, place)
		case !exists || g.busy || l.isClosed:
		default:
			g.busy = true
			began := l.view.version
			l.settling.Go(func() {
				ctx, stop := withSession(l.ctx, g.session)
				defer stop()
				// After an error, the next batch brings a retry, unless the session has ended.
				_ = l.removePlace(ctx, g.session, place, registry.Rev{})
				l.mu.Lock()
				defer l.mu.Unlock()
				g.busy = false
				if l.view.version != began {
					l.removeStrays() // the place may have been created again after removePlace read it
				}
			})
		}
	}
}
