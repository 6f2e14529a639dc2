package executor

import "time"

// Permanent wraps the error of a handler to report that another attempt would fail, too: the
// run is not retried. The text stays that of err, and errors.Is and errors.As find err. If err
// is nil, Permanent returns nil.
//
// A handler may wrap the result further. Permanent prevails over a RetryAfter that wraps it or
// is wrapped by it.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &PermanentError{Err: err}
}

// PermanentError is the error that Permanent returns, for errors.As.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryAfter wraps the error of a handler to report when another attempt makes sense: if the
// run is retried, then not before d has passed since its end. It does not cause a retry of a
// job without retries, and does not shorten the job's own delay. A negative d counts as 0. The
// text stays that of err, and errors.Is and errors.As find err. If err is nil, RetryAfter
// returns nil.
//
// If an error wraps several delays, the outermost applies.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &RetryAfterError{After: max(d, 0), Err: err}
}

// RetryAfterError is the error that RetryAfter returns, for errors.As.
type RetryAfterError struct {
	After time.Duration // counted from the end of the run
	Err   error
}

func (e *RetryAfterError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryAfterError) Unwrap() error { return e.Err }
