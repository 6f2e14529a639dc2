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

// meanings are the answers of etcd that a caller of the registry has a name for.
var meanings = []struct{ answer, means error }{
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

// translate is the only place where this package turns etcd's errors into ours. What has
// no name there, such as the loss of a connection, is left for the caller to judge, who
// knows what was at stake.
func translate(err error) error {
	if err == nil {
		return nil
	}
	err = rpctypes.Error(err)
	for _, m := range meanings {
		if errors.Is(err, m.answer) {
			return fmt.Errorf("%w: %w", m.means, err)
		}
	}
	if s, ok := status.FromError(err); ok && s.Message() != "" {
		return callError{s.Message(), err}
	}
	return err
}

// callError is an error of gRPC without the words around its message.
type callError struct {
	text  string
	cause error
}

func (e callError) Error() string { return e.text }
func (e callError) Unwrap() error { return e.cause }

// served reports whether err, as translated, is an answer of a server.
func served(err error) bool {
	var answer rpctypes.EtcdError
	return errors.As(err, &answer)
}

// refused reports whether err, as translated, is the server's word that it has not done
// what was asked, and will not.
func refused(err error) bool {
	var answer rpctypes.EtcdError
	if !errors.As(err, &answer) {
		return false
	}
	// Requests carry the wish for a leader: a member without one turns them away unread.
	// Other answers of that code come from members that wait for an outcome in vain.
	return slices.Contains(refusals, answer.Code()) || errors.Is(err, rpctypes.ErrNoLeader)
}

var refusals = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.PermissionDenied, codes.ResourceExhausted,
	codes.FailedPrecondition, codes.OutOfRange, codes.Unauthenticated,
}

// unread reports whether a request that was refused with err was not even looked at: the
// member has no leader, or the token or the view of the access rules is out of date, for
// which the client library fetches a new one.
func unread(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrInvalidAuthToken) ||
		errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// passing reports whether a request that may be made twice, and was answered by err, is
// worth making again: it may go better a moment later, or on another member.
func passing(err error) bool {
	return !refused(err) || unread(err) || errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrNotLeader)
}
