package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// libraryLogger logs the messages of the client library at DEBUG: errors and state changes
// already report everything that matters. The library logs no credentials.
type libraryLogger struct{ log *slog.Logger }

func (p libraryLogger) Printf(format string, args ...any) {
	if p.log.Enabled(context.Background(), slog.LevelDebug) {
		p.log.Debug("client library: " + fmt.Sprintf(format, args...))
	}
}

// reportMalformed logs that a connection was closed because of a malformed frame, once a minute at most:
// each connection may fail in the same way.
func (c *Client) reportMalformed(address string, err error) {
	now, last := time.Now().Unix(), c.malformedAt.Load()
	if now-last < 60 || !c.malformedAt.CompareAndSwap(last, now) {
		return
	}
	c.options.Logger.LogAttrs(context.Background(), slog.LevelWarn, "closed a connection whose bytes are not ZooKeeper's protocol",
		slog.String("endpoint", address), slog.Any("error", err))
}
