package executor

import (
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Causes with which the context of a run ends. context.Cause returns an error that wraps one
// of them.
var (
	// ErrDraining means that the executor is shutting down and DrainTimeout has passed. If the
	// handler then returns an error, the run is handed back; see Executor.Shutdown.
	ErrDraining = errors.New("draining")
	// ErrSessionLost means that this process may no longer own the shard: another instance may
	// have begun the run again. It equals registry.ErrSessionLost.
	ErrSessionLost = registry.ErrSessionLost
	// ErrTimeout means that the attempt took longer than Job.Timeout.
	ErrTimeout = errors.New("run timed out")
	// ErrYield means that somebody waits for the end of the run: see Run.Yield. Only the context of
	// a run of Always ends with it. The handler of any job can return it after Run.Yield is
	// closed: the run is then handed back.
	ErrYield = errors.New("run is to yield")
	// ErrOverlap means that the next fire of the shard is due, and Job.OnOverlap is CancelRunning.
	ErrOverlap = claimer.ErrOverlap
	// ErrCancelled means that an operator cancelled the run: see operator.Operator.Cancel.
	ErrCancelled = claimer.ErrCancelled
)

// Errors of this package, for errors.Is.
var (
	// ErrRunOver means that the run or its session has ended. Nothing was written.
	ErrRunOver = errors.New("run over")
	// ErrNameTaken means that another live process has the instance's name. The text names the
	// process and its host.
	ErrNameTaken = member.ErrNameTaken
	// ErrTooManyTriggers means that 64 triggers of the job wait for the leader, which takes up 64 more.
	ErrTooManyTriggers = operator.ErrTooManyTriggers
	// ErrTooManyDisabled means that more than 256 instances or 256 hosts would be disabled.
	ErrTooManyDisabled = operator.ErrTooManyDisabled
	// ErrInvalidArgument means that an argument of a call is wrong, at all or for the job as it is stored, such as a shard
	// that it does not have. Nothing was written.
	ErrInvalidArgument = operator.ErrInvalidArgument
	// ErrInvalidJob means that a definition is invalid. The text names job, field and rule.
	ErrInvalidJob = errors.New("invalid job")
	// ErrInvalidKind means that a kind of jobs is invalid. The text names kind, field and rule.
	ErrInvalidKind = errors.New("invalid kind")
	// ErrUnknownKind means that this process has not registered a kind of that name, or that no process has stored it.
	ErrUnknownKind = operator.ErrUnknownKind
	// ErrUnknownJob means that no process has stored or registered a job of that name.
	ErrUnknownJob = operator.ErrUnknownJob
	// ErrNewerFormat means that a record or text is not valid in this version of rota, and may
	// be in a later one. Start fails with it, and writes nothing, if a later version has
	// created the namespace.
	ErrNewerFormat = operator.ErrNewerFormat
)

// unknownError is the error of a word that is misspelt or belongs to a later version. It
// matches ErrNewerFormat, but its text does not mention versions, which would mislead those
// who misspelt the word.
type unknownError struct{ text string }

func (e *unknownError) Error() string { return e.text }

func (e *unknownError) Is(target error) bool { return target == ErrNewerFormat }

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
