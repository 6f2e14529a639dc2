package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// quotaExceededText is the library's text for the server's error code -125, which it does not
// know.
const quotaExceededText = "unknown error: -125"

// translate turns the server's errors into the registry's. It returns an error without a
// translation as it is.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: %w", registry.ErrPermission, err)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL): // no credentials match the ACL
		return fmt.Errorf("%w: %w", registry.ErrUnauthenticated, err)
	case err.Error() == quotaExceededText:
		return fmt.Errorf("%w: %w", registry.ErrQuota, err)
	}
	return err
}

// connectionLost reports whether err means that the connection or the server's session behind
// it has ended. An idempotent request can then be repeated.
func connectionLost(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) || errors.Is(err, zk.ErrNoServer) ||
		errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrSessionMoved)
}
