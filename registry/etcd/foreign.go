package etcd

import (
	"context"
	"log/slog"
	"sync"
)

// foreign remembers what was reported, so that a list that is read each second does not
// fill the log.
type foreign struct {
	mu   sync.Mutex
	said map[string]int64 // revision by stored key
}

const maxForeign = 1000

func (f *foreign) report(c *Client, stored string, revision int64, err error) {
	f.mu.Lock()
	known := f.said[stored] == revision
	if f.said == nil || len(f.said) == maxForeign {
		f.said = make(map[string]int64)
	}
	f.said[stored] = revision
	f.mu.Unlock()
	if !known {
		c.log.LogAttrs(context.Background(), slog.LevelWarn, "a foreign value is left out", slog.String("stored", stored), cause(err))
	}
}
