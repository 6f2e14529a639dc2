package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/backoff"
)

// closeTimeout bounds the closing of a session that is no longer needed.
const closeTimeout = 3 * time.Second

// KeepSession opens a session, with pauses of up to half a second between retries, and
// calls f with it and a context that ends when the session does. If the session is lost,
// KeepSession waits for f to return, opens another session, and calls f again. The owned keys
// of the lost session are deleted; f has to create those of the new one.
//
// The context of f ends with a cause that wraps ErrSessionLost when the session is Lost,
// with ErrClosed when reg is closed, and with the cause of ctx when that ends. KeepSession
// waits for f without a bound and keeps its session open meanwhile: f can clean up after
// the end of ctx, unless Session.Lost is closed. The session must not be used once f has
// returned.
//
// KeepSession returns the result of f, unless the session was lost and ctx has not ended:
// then it drops the result and opens another session. It returns the cause of ctx if that
// ends while there is no session, and the error of OpenSession if that is not Retryable.
//
// Each session is closed when f has returned or panicked, also if ctx has ended. A session
// that cannot be closed at the store within 3 seconds, or the TTL if that is shorter, is
// left to expire.
func KeepSession(ctx context.Context, reg Registry, o SessionOptions, f func(ctx context.Context, s Session) error) error {
	var pause backoff.Backoff
	for {
		s, err := reg.OpenSession(ctx, o)
		switch {
		case err == nil:
			opened := time.Now()
			lost, err := runInSession(ctx, s, f)
			if !lost || ctx.Err() != nil {
				return err
			}
			if time.Since(opened) >= s.TTL() {
				pause.Reset() // a session lost within its TTL counts as a failed try
			}
		case !Retryable(err):
			return err
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// runInSession calls f with s, and closes s. It reports whether s was lost before f returned.
func runInSession(ctx context.Context, s Session, f func(context.Context, Session) error) (lost bool, err error) {
	defer closeSession(ctx, s)

	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-s.Lost():
			end(endCause(s))
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer end(nil)

	err = f(ctx, s)
	return errors.Is(s.Err(), ErrSessionLost), err
}

// endCause returns s.Err(), to which it adds the session's id if that is ErrClosed.
func endCause(s Session) error {
	err := s.Err()
	if errors.Is(err, ErrClosed) {
		return fmt.Errorf("session %s %w", s.ID(), err)
	}
	return err
}

// closeSession closes s, whether or not ctx has ended. It closes lost sessions too: the
// store may not have expired them yet, and their owned keys conflict with those of the
// next session.
func closeSession(ctx context.Context, s Session) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(closeTimeout, s.TTL()))
	defer cancel()
	if err := s.Close(ctx); err != nil {
		return fmt.Errorf("close session %s: %w", s.ID(), err)
	}
	return nil
}
