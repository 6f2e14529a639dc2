package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// closeTimeout bounds the closing of a session that nobody waits for.
const closeTimeout = 3 * time.Second

// KeepSession calls f while there is a session: it opens one, with pauses of up to half
// a second between tries, and gives f a context that ends when the session does. If the
// session is lost, KeepSession waits for f to return, opens another, and calls f again.
// What a new session is to have is made anew by f: nothing of the old one comes back.
//
// The context of f ends with a cause that wraps ErrSessionLost when the session is Lost,
// with ErrClosed when reg is closed, and with the cause of ctx when that ends. f is waited
// for however long it takes, and its session is kept as long: after the end of ctx it can
// still put its things in order, while Session.Lost tells whether it may. The session is
// not to be used once f has returned.
//
// KeepSession returns what f returned, unless ctx lives and the session was lost: then f's
// result is dropped. It never gives up on a loss. It returns the cause of ctx if that ends
// while there is no session, and the error of OpenSession if that is not Retryable.
//
// Each session is closed when f has returned or panicked, also if ctx has ended. One that
// the store cannot be told of within 3 seconds, or the TTL if that is shorter, is left to
// expire.
func KeepSession(ctx context.Context, reg Registry, o SessionOptions, f func(ctx context.Context, s Session) error) error {
	var pause backoff
	for {
		s, err := reg.OpenSession(ctx, o)
		switch {
		case err == nil:
			opened := time.Now()
			lost, err := inSession(ctx, s, f)
			if !lost || ctx.Err() != nil {
				return err
			}
			if time.Since(opened) >= s.TTL() {
				pause.reset() // but where sessions end as they are opened, tries are spaced
			}
		case !transient(err):
			return err
		}
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

// inSession calls f with s, and closes s. It reports whether s was lost before f returned.
func inSession(ctx context.Context, s Session, f func(context.Context, Session) error) (lost bool, err error) {
	defer closeSession(ctx, s)

	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-s.Lost():
			end(nameClosed(s))
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer end(nil)

	err = f(ctx, s)
	return errors.Is(s.Err(), ErrSessionLost), err
}

// nameClosed returns s.Err(), with the session's id if that is the bare ErrClosed.
func nameClosed(s Session) error {
	err := s.Err()
	if errors.Is(err, ErrClosed) {
		return fmt.Errorf("session %s %w", s.ID(), err)
	}
	return err
}

// closeSession closes s, whether or not ctx has ended. A session that was lost is closed as
// well: the store may keep it for some time yet, and its owned keys stand in the way of
// the next one's.
func closeSession(ctx context.Context, s Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(closeTimeout, s.TTL()))
	defer cancel()
	if err := s.Close(ctx); err != nil {
		return fmt.Errorf("close session %s: %w", s.ID(), err)
	}
	return nil
}
