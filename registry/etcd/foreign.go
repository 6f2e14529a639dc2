package etcd

import (
	"context"
	"log/slog"
	"sync"
)

// foreignLog remembers which foreign values were logged, so that a directory that is listed
// every second does not fill the log.
type foreignLog struct {
	mu       sync.Mutex
	reported map[string]int64 // stored key to revision
}

const maxReported = 1000

func (f *foreignLog) report(c *Client, stored string, revision int64, err error) {
	f.mu.Lock()
	known := f.reported[stored] == revision
	if f.reported == nil || len(f.reported) == maxReported {
		f.reported = make(map[string]int64)
	}
	f.reported[stored] = revision
	f.mu.Unlock()
	if !known {
		c.log.LogAttrs(context.Background(), slog.LevelWarn, "skipped a key with a foreign value", slog.String("stored", stored), errorAttr(err))
	}
}
