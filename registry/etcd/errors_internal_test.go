package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rota-dev/rota/registry"
)

func TestErrors(t *testing.T) {
	type verdict struct{ refused, unread, retried bool }
	const no, yes = false, true
	for name, c := range map[string]struct {
		errs []error
		want verdict
	}{
		"of a member that waited in vain leave the outcome open": {[]error{
			rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCTimeoutDueToLeaderFail, rpctypes.ErrGRPCTimeoutDueToConnectionLost,
			rpctypes.ErrGRPCTimeoutWaitAppliedIndex, rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCStopped, rpctypes.ErrGRPCUnhealthy,
		}, verdict{no, no, yes}},
		"of a connection leave the outcome open": {[]error{
			status.Error(codes.Unavailable, "transport is closing"), status.Error(codes.Canceled, "stream reset"),
			status.Error(codes.DeadlineExceeded, "context deadline exceeded"), status.Error(codes.ResourceExhausted, "message too large"),
			context.Canceled, context.DeadlineExceeded,
		}, verdict{no, no, yes}},
		"of a member with damaged data leave the outcome open": {[]error{rpctypes.ErrGRPCCorrupt}, verdict{no, no, yes}},
		"of a request that was not looked at permit sending it again": {[]error{
			rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty,
		}, verdict{yes, yes, yes}},
		"of a busy or deposed member permit another read": {[]error{
			rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCNotLeader,
		}, verdict{yes, no, yes}},
		"of a request that was judged are final": {[]error{
			rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCAuthFailed, rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCRequestTooLarge,
			rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCDuplicateKey, rpctypes.ErrGRPCCompacted, rpctypes.ErrGRPCLeaseNotFound,
		}, verdict{yes, no, no}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range c.errs {
				err = translate(err)
				require.Equal(t, c.want, verdict{refused(err), rejectedUnread(err), worthRetrying(err)}, "%v", err)
			}
		})
	}
}

func TestTranslate(t *testing.T) {
	require.NoError(t, translate(nil))
	t.Run("keeps the server's error and adds the registry's", func(t *testing.T) {
		for answer, want := range map[error]error{
			rpctypes.ErrGRPCNoSpace: registry.ErrQuota, rpctypes.ErrGRPCPermissionDenied: registry.ErrPermission,
			rpctypes.ErrGRPCAuthFailed: registry.ErrUnauthenticated, rpctypes.ErrGRPCUserEmpty: registry.ErrUnauthenticated,
			rpctypes.ErrGRPCUserNotFound: registry.ErrUnauthenticated, rpctypes.ErrGRPCInvalidAuthToken: registry.ErrUnauthenticated,
			rpctypes.ErrGRPCRequestTooLarge: registry.ErrTooLarge, rpctypes.ErrGRPCTooManyOps: registry.ErrTooLarge,
			rpctypes.ErrGRPCLeaseNotFound: registry.ErrSessionLost,
		} {
			err := translate(answer)
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, err, rpctypes.Error(answer))
			require.ErrorContains(t, err, rpctypes.ErrorDesc(answer))
			require.True(t, answeredByServer(err))
		}
	})
	t.Run("reduces other errors of gRPC to their message", func(t *testing.T) {
		broken := status.Error(codes.Unavailable, "transport is closing")
		err := translate(broken)
		require.EqualError(t, err, "transport is closing")
		require.ErrorIs(t, err, broken)
		require.False(t, answeredByServer(err))
		require.EqualError(t, translate(rpctypes.ErrGRPCTimeout), rpctypes.ErrorDesc(rpctypes.ErrGRPCTimeout))
		require.True(t, answeredByServer(translate(rpctypes.ErrGRPCTimeout)))
	})
	t.Run("returns the rest as it is", func(t *testing.T) {
		silent := status.Error(codes.Internal, "")
		for _, err := range []error{context.Canceled, silent} {
			require.Equal(t, err, translate(err))
		}
	})
}
