package etcd

import (
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/internal/remote"
)

// etcd servers have lost watch events: at compactions, at restarts, and on members that fell
// behind. Each watched directory is therefore compared with the store from time to time: the
// number of keys, and the keys written since the last comparison. If the watch has missed one,
// it starts again with a list.

const (
	// auditGap is the least time between two comparisons of a handle, however many directories
	// it watches: all of them together cost the store at most two reads a second.
	auditGap = 500 * time.Millisecond
	// auditGrace is the time that an event in transit has to arrive.
	auditGrace = time.Second
)

// startAudit starts the audit with the first watch. c.mu is held.
func (c *Client) startAudit() {
	if !c.auditing && c.options.AuditEvery > 0 {
		c.auditing = c.calls.Go(c.auditLoop)
	}
}

// auditLoop compares the watchers in turn, each once per AuditEvery.
func (c *Client) auditLoop() {
	ctx := c.calls.Context()
	for {
		round := c.currentWatchers()
		pause := c.options.AuditEvery / time.Duration(max(len(round), 1))
		if len(round) == 0 && !remote.Sleep(ctx, remote.Jittered(pause)) {
			return
		}
		for _, w := range round {
			if !remote.Sleep(ctx, max(remote.Jittered(pause), auditGap)) {
				return
			}
			w.auditOnce()
		}
	}
}

func (c *Client) currentWatchers() []*watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.watchers))
}

// auditOnce compares the events that w received with the store. An event may be in transit, so
// only a difference that is still there after auditGrace counts.
func (w *watcher) auditOnce() {
	if w.matchesStore() || !remote.Sleep(w.ctx, auditGrace) || w.matchesStore() {
		return
	}
	select {
	case w.relist <- struct{}{}:
	default: // a restart is pending already
	}
}

// matchesStore reports whether w has received everything that is stored. A failed read counts
// as a match: it proves nothing.
func (w *watcher) matchesStore() bool {
	w.mu.Lock()
	audited, seen := w.audited, w.revision
	w.mu.Unlock()
	resp, err := w.client.readRange(w.ctx, &pb.RangeRequest{
		Key: []byte(w.prefix), RangeEnd: rangeEnd(w.prefix),
		KeysOnly: true, MinModRevision: audited + 1,
	})
	if err != nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case resp.Header.Revision < seen: // the store was restored from a backup
		return false
	case resp.Count != int64(len(w.revisions)): // Count covers all keys, also those below MinModRevision
		return false
	}
	for _, kv := range resp.Kvs {
		if w.revisions[string(kv.Key)] < kv.ModRevision {
			return false
		}
	}
	w.audited = max(w.audited, resp.Header.Revision)
	return true
}
