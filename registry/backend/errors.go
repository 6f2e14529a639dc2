package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/registry"
)

// ErrHandleClosed is registry.ErrClosed for a call on a closed handle. Its text names the
// registry, since it is wrapped in errors such as "open session: ...".
var ErrHandleClosed = fmt.Errorf("registry %w", registry.ErrClosed)

// classes are the errors of a registry that a caller can match.
var classes = []error{
	registry.ErrClosed, registry.ErrNotFound, registry.ErrConflict, registry.ErrForeign, registry.ErrInvalidKey,
	registry.ErrInvalidTxn, registry.ErrNotApplied, registry.ErrPermission, registry.ErrQuota, registry.ErrSessionLost,
	registry.ErrReadOnly, registry.ErrTooLarge, registry.ErrUnauthenticated, registry.ErrUnavailable, registry.ErrUnknownOutcome,
}

// IsClassified reports whether err wraps one of the registry's errors already.
func IsClassified(err error) bool {
	return slices.ContainsFunc(classes, func(class error) bool { return errors.Is(err, class) })
}

// Unavailable returns the error of a read, watch or session call that failed by cause: cause
// itself if it wraps an error of the registry, else registry.ErrUnavailable with the cause.
func Unavailable(cause error) error {
	if IsClassified(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", registry.ErrUnavailable, cause)
}

// Unknown returns the error of a transaction that was sent and not answered, due to cause.
func Unknown(cause error) error { return fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, cause) }

// NotApplied returns the error of a transaction that was not sent, or was refused, due to
// cause: cause itself if it wraps an error of the registry, else registry.ErrNotApplied with
// the cause. registry.ErrClosed does not say that nothing was changed, so it is wrapped as well.
func NotApplied(cause error) error {
	if isClosedOnly(cause) {
		return fmt.Errorf("%w: %w", registry.ErrNotApplied, cause)
	}
	return definite(cause)
}

// definite is NotApplied for a transaction that was not begun.
func definite(cause error) error {
	if IsClassified(cause) {
		return cause
	}
	return fmt.Errorf("%w: %w", registry.ErrNotApplied, cause)
}

// isClosedOnly reports whether err wraps registry.ErrClosed and does not classify an outcome.
func isClosedOnly(err error) bool {
	return errors.Is(err, registry.ErrClosed) && !errors.Is(err, registry.ErrNotApplied) && !errors.Is(err, registry.ErrUnknownOutcome)
}

// CallError returns err, which a call with ctx returned. If ctx has ended, it returns the cause
// instead, with err as a remark: the errors of client libraries do not contain the cause.
func CallError(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w (%v)", context.Cause(ctx), err)
}
