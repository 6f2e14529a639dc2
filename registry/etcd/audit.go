package etcd

import (
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/internal/remote"
)

// Servers have lost events: at compactions, at restarts, on members that fell behind. So
// each directory that is watched is compared with the store from time to time: how many
// keys there are, and which of them were written since the last comparison. One that the
// watch has not told of makes it begin again.

const (
	// auditGap is the least time between two comparisons of a handle, however many
	// directories it watches: together they cost the store two reads a second at most.
	auditGap = 500 * time.Millisecond
	// auditGrace is for events that are on their way.
	auditGrace = time.Second
)

// beginAudit makes the handle compare, from its first watch on. c.mu is held.
func (c *Client) beginAudit() {
	if !c.auditing && c.options.AuditEvery > 0 {
		c.auditing = c.calls.Go(c.audit)
	}
}

// audit takes the watchers in turn, so that each has its turn once in AuditEvery.
func (c *Client) audit() {
	ctx := c.calls.Context()
	for {
		round := c.watching()
		pause := c.options.AuditEvery / time.Duration(max(len(round), 1))
		if len(round) == 0 && !remote.Sleep(ctx, remote.Jittered(pause)) {
			return
		}
		for _, w := range round {
			if !remote.Sleep(ctx, max(remote.Jittered(pause), auditGap)) {
				return
			}
			w.audit()
		}
	}
}

func (c *Client) watching() []*watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.watchers))
}

// audit compares what w was told with what is stored. A difference may be under way: it
// has to be there twice.
func (w *watcher) audit() {
	if w.agrees() || !remote.Sleep(w.ctx, auditGrace) || w.agrees() {
		return
	}
	select {
	case w.relist <- struct{}{}:
	default: // it is about to
	}
}

// agrees reports whether w was told of all that is stored, as far as can be told now.
func (w *watcher) agrees() bool {
	w.mu.Lock()
	audited, seen := w.audited, w.revision
	w.mu.Unlock()
	resp, err := w.client.read(w.ctx, &pb.RangeRequest{
		Key: []byte(w.prefix), RangeEnd: after(w.prefix),
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
	case resp.Count != int64(len(w.has)): // of all keys, also of those that were not asked for
		return false
	}
	for _, kv := range resp.Kvs {
		if w.has[string(kv.Key)] < kv.ModRevision {
			return false
		}
	}
	w.audited = max(w.audited, resp.Header.Revision)
	return true
}
