package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
)

// yieldError returns the error to report for a run that ended with err. A run that was asked to yield, and did, is
// handed back, so that the next owner makes its rest at once. If its epoch is over, it has succeeded instead:
// its owner would make it again at once, and be asked again.
func (p *program) yieldError(ctx context.Context, s *yieldSignal, err error) error {
	asked, over := s.state()
	switch yields := errors.Is(err, ErrYield) || p.always && errors.Is(context.Cause(ctx), ErrYield); {
	case !yields, !asked, isPanic(err), isCancelled(ctx):
		return err
	case over, !p.handsBack():
		return nil
	}
	return fmt.Errorf("%w: %w", claimer.ErrHandedBack, ErrYield)
}

// handBackError returns the result to report for a handler that returned err. It wraps
// ErrHandedBack if the handler stopped because this process shuts down. A panic is a failure.
func handBackError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), ErrDraining) && !isPanic(err):
		return fmt.Errorf("%w: %w", claimer.ErrHandedBack, err)
	case errors.Is(err, claimer.ErrHandedBack):
		return errors.New(err.Error()) // a handler must not be able to cause a re-run by its error
	}
	return err
}

// retryError returns the error to report for a run with context ctx that ended with err: a
// *claimer.RetryError if the run is to be retried.
func (p *program) retryError(ctx context.Context, r *Run, took time.Duration, err error) error {
	switch {
	case err == nil, p.Tracking != TrackRuns, p.Retry.Max == 0, p.Retry.Max > 0 && r.Retries >= p.Retry.Max:
		return err
	case errors.Is(err, claimer.ErrHandedBack), errors.Is(context.Cause(ctx), ErrSessionLost), isCancelled(ctx):
		return err
	}
	if _, ok := errors.AsType[*PermanentError](err); ok {
		return err
	}
	retries := r.Retries
	if p.always && took >= time.Duration(p.Retry.MaxInterval) {
		retries = 0 // a daemon that has run for long is as good as new
	}
	delay := p.Retry.delay(fmt.Sprint(r.ShardKey(), r.FireTime.UnixNano(), r.Trigger), retries)
	if after, ok := errors.AsType[*RetryAfterError](err); ok {
		delay = max(delay, after.After)
	}
	return &claimer.RetryError{In: min(delay, due.MaxRetryDelay), Err: err}
}

// asRetry returns the error that retryError has made of a run's error, if it did. Nothing wraps it, and one inside
// an error of a handler does not count.
func asRetry(err error) (*claimer.RetryError, bool) {
	retry, ok := err.(*claimer.RetryError) //nolint:errorlint // see above
	return retry, ok
}

// isCancelled reports whether a due fire or an operator has cancelled the run with context ctx.
func isCancelled(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, ErrOverlap) || errors.Is(cause, ErrCancelled)
}
