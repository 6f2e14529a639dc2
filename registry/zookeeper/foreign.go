package zookeeper

import (
	"errors"

	"github.com/rota-dev/rota/registry"
)

// isForeign reports whether err is about a foreign value, which lists and watches skip. A key
// without the right to read is not skipped: rota may have written it, so a reader must not miss
// it.
func isForeign(err error) bool { return errors.Is(err, registry.ErrForeign) }

// logForeign reports a key that is skipped.
func (c *Client) logForeign(key registry.Key, err error) {
	c.options.Logger.Warn("skipped a key with a foreign value", "key", key, "error", err)
}
