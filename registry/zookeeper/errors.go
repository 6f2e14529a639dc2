package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// quotaExceeded is what the library makes of a code that it has no name for.
const quotaExceeded = "unknown error: -125"

// translate turns the server's answers that the registry has a word for into that. It
// leaves others as they are.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: %w", registry.ErrPermission, err)
	case errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL): // an ACL of nobody who is known
		return fmt.Errorf("%w: %w", registry.ErrUnauthenticated, err)
	case err.Error() == quotaExceeded:
		return fmt.Errorf("%w: %w", registry.ErrQuota, err)
	}
	return err
}

// lost reports whether err says that the connection broke, or the session that it carried
// came to its end: a request that changes nothing is worth making again.
func lost(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) || errors.Is(err, zk.ErrNoServer) ||
		errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrSessionMoved)
}
