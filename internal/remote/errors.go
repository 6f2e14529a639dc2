package remote

import (
	"errors"
	"fmt"

	"github.com/rota-dev/rota/registry"
)

// ErrHandleClosed is registry.ErrClosed for what a closed handle is asked for, with the name of
// what was closed: it ends up in errors of calls such as "open session".
var ErrHandleClosed = fmt.Errorf("registry %w", registry.ErrClosed)

// said are the errors that tell a caller all there is to know.
var said = []error{
	registry.ErrClosed, registry.ErrNotFound, registry.ErrConflict, registry.ErrForeign, registry.ErrInvalidKey,
	registry.ErrInvalidTxn, registry.ErrNotApplied, registry.ErrPermission, registry.ErrQuota, registry.ErrSessionLost,
	registry.ErrTooLarge, registry.ErrUnauthenticated, registry.ErrUnavailable, registry.ErrUnknownOutcome,
}

// Said reports whether err is one of the registry's errors already.
func Said(err error) bool {
	for _, known := range said {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// Unavailable is the error of a read, a watch or a session that was cut short by cause:
// cause itself if that says what it is.
func Unavailable(cause error) error {
	if Said(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", registry.ErrUnavailable, cause)
}

// Unknown is the error of a transaction that was sent and not answered because of cause.
func Unknown(cause error) error { return fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, cause) }

// NotApplied is the error of a transaction that was not sent, or refused, because of cause:
// cause itself if that says what it is.
func NotApplied(cause error) error {
	if Said(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", registry.ErrNotApplied, cause)
}
