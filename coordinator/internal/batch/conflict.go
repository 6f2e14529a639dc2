package batch

import (
	"errors"

	"github.com/rota-dev/rota/registry"
)

// FindConflict returns the conflict that err is, if it is one for certain: an error that
// wraps registry.ErrUnknownOutcome may wrap a conflict too, and then says nothing.
func FindConflict(err error) (*registry.ConflictError, bool) {
	var c *registry.ConflictError
	if errors.Is(err, registry.ErrUnknownOutcome) || !errors.As(err, &c) {
		return nil, false
	}
	return c, true
}
