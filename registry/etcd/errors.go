package etcd

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rota-dev/rota/registry"
)

// translations maps etcd's errors to the registry's.
var translations = []struct{ answer, means error }{
	{rpctypes.ErrNoSpace, registry.ErrQuota},
	{rpctypes.ErrPermissionDenied, registry.ErrPermission},
	{rpctypes.ErrAuthFailed, registry.ErrUnauthenticated},
	{rpctypes.ErrUserEmpty, registry.ErrUnauthenticated},
	{rpctypes.ErrUserNotFound, registry.ErrUnauthenticated},
	{rpctypes.ErrInvalidAuthToken, registry.ErrUnauthenticated},
	{rpctypes.ErrRequestTooLarge, registry.ErrTooLarge},
	{rpctypes.ErrTooManyOps, registry.ErrTooLarge},
	{rpctypes.ErrLeaseNotFound, registry.ErrSessionLost},
}

// translate is the only place where this package turns etcd's errors into the registry's. An
// error without a translation, such as a lost connection, is returned as it is: its meaning
// depends on the request, which only the caller knows.
func translate(err error) error {
	if err == nil {
		return nil
	}
	err = rpctypes.Error(err)
	for _, m := range translations {
		if errors.Is(err, m.answer) {
			return fmt.Errorf("%w: %w", m.means, err)
		}
	}
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return callError{s.Message(), err}
	}
	return err
}

// callError is a gRPC error reduced to its message.
type callError struct {
	text  string
	cause error
}

func (e callError) Error() string { return e.text }
func (e callError) Unwrap() error { return e.cause }

// answeredByServer reports whether err, as translated, came from a server.
func answeredByServer(err error) bool {
	var answer rpctypes.EtcdError
	return errors.As(err, &answer)
}

// refused reports whether err, as translated, proves that the server has not executed the
// request and never will.
func refused(err error) bool {
	var answer rpctypes.EtcdError
	if !errors.As(err, &answer) {
		return false
	}
	// Every request requires a leader (WithRequireLeader), so a member without one rejects it
	// unread. Other errors with the code Unavailable come from members that waited in vain for
	// the outcome.
	return slices.Contains(refusals, answer.Code()) || errors.Is(err, rpctypes.ErrNoLeader)
}

var refusals = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.ResourceExhausted,
	codes.FailedPrecondition, codes.OutOfRange, codes.Unauthenticated,
}

// rejectedUnread reports whether a refused request was rejected before the server looked at it:
// the member has no leader, or the token or the auth revision is outdated, in which case the
// client library fetches a new one.
func rejectedUnread(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrInvalidAuthToken) ||
		errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// worthRetrying reports whether an idempotent request that failed with err may succeed a moment
// later or on another member.
func worthRetrying(err error) bool {
	return !refused(err) || rejectedUnread(err) || errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrNotLeader)
}
