package executor

import (
	"errors"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry"
)

// Why the context of a run ended, as context.Cause tells it.
var (
	// ErrDraining: the executor is shutting down and DrainTimeout is over. A handler that
	// returns an error then hands its run back: see Executor.Shutdown.
	ErrDraining = errors.New("draining")
	// ErrSessionLost: the process may no longer speak for its shards; others may have
	// begun the work again. It is registry.ErrSessionLost, under the name of this package.
	ErrSessionLost = registry.ErrSessionLost
	// ErrTimeout: the attempt took longer than Job.Timeout.
	ErrTimeout = errors.New("run timed out")
)

// What the calls of this package return, to be matched with errors.Is.
var (
	// ErrRunOver: the run, or the session it runs under, has ended. Nothing was written.
	ErrRunOver = errors.New("run over")
	// ErrNameTaken: a living instance has the name. The text names its process and host.
	ErrNameTaken = coordinator.ErrNameTaken
	// ErrTooManyTriggers: as many triggers of the job wait as may.
	ErrTooManyTriggers = coordinator.ErrTooManyTriggers
	// ErrTooManyDisabled: as many instances or hosts are disabled as may be.
	ErrTooManyDisabled = coordinator.ErrTooManyDisabled
	// ErrInvalidJob: a definition breaks a rule. The text names job, field and rule.
	ErrInvalidJob = errors.New("invalid job")
	// ErrUnknownJob: there is no such job.
	ErrUnknownJob = coordinator.ErrUnknownJob
	// ErrNewerFormat: a record or text says what this version does not know. A later
	// version may. Start fails with it, and writes nothing, where a later version has made
	// the namespace.
	ErrNewerFormat = coordinator.ErrNewerFormat
)

// unknownError is about a word that this version does not know: misspelt, or written by
// a later version. It is an ErrNewerFormat without saying so to those who misspelt.
type unknownError struct{ text string }

func (e *unknownError) Error() string { return e.text }

func (e *unknownError) Is(target error) bool { return target == ErrNewerFormat }
