package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
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
	if isFirstOfMinute(&c.malformedAt) {
		c.options.Logger.LogAttrs(context.Background(), slog.LevelWarn, "closed a connection whose bytes are not ZooKeeper's protocol",
			slog.String("endpoint", address), slog.Any("error", err))
	}
}

// reportLostCommits logs that the store has lost commits, once a minute at most: a batch of a watch that a
// reader receives late makes the handle detect the same loss again.
func (c *Client) reportLostCommits(seen, commit int64) {
	if isFirstOfMinute(&c.lossAt) {
		c.options.Logger.LogAttrs(context.Background(), slog.LevelWarn, "the store has lost commits that this handle has observed",
			slog.Int64("observed_zxid", seen), slog.Int64("zxid", commit),
			slog.String("next", "reads return what the store contains now; sessions are lost"),
			slog.String("remedy", "restore the store, unless it was emptied or set back on purpose"))
	}
}

// isFirstOfMinute reports whether last is at least a minute ago, and sets it to the present then.
func isFirstOfMinute(last *atomic.Int64) bool {
	now, before := time.Now().Unix(), last.Load()
	return now-before >= 60 && last.CompareAndSwap(before, now)
}
