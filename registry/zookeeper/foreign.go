package zookeeper

import (
	"errors"

	"github.com/rota-dev/rota/registry"
)

// passedOver reports whether err is about what somebody else has put at a key, which lists
// and watches leave out. A key that may not be read is another matter: it may be one that
// was written by this library, and should not be missed.
func passedOver(err error) bool { return errors.Is(err, registry.ErrForeign) }

// leaveOut tells that a key does not show in what was asked for.
func (c *Client) leaveOut(key registry.Key, err error) {
	c.o.Logger.Warn("left out a key", "key", key, "error", err)
}
