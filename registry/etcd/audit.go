package etcd

import (
	"context"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/rota-dev/rota/registry/backend"
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
		c.auditing = c.handle.Go(c.auditLoop)
	}
}

// auditLoop compares the watched directories in turn, each once per AuditEvery.
func (c *Client) auditLoop() {
	ctx := c.handle.Context()
	for {
		round := c.currentSources()
		pause := c.options.AuditEvery / time.Duration(max(len(round), 1))
		if len(round) == 0 && !backend.Sleep(ctx, backend.Jittered(pause)) {
			return
		}
		for _, s := range round {
			if !backend.Sleep(ctx, max(backend.Jittered(pause), auditGap)) {
				return
			}
			s.auditOnce()
		}
	}
}

func (c *Client) currentSources() []*source {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.sources))
}

// auditOnce compares the events that s received with the store. An event may be in transit, so
// only a difference that is still there after auditGrace counts.
func (s *source) auditOnce() {
	if s.matchesStore() || !backend.Sleep(s.ctx, auditGrace) || s.matchesStore() {
		return
	}
	backend.Signal(s.relist)
}

// matchesStore reports whether s has received everything that is stored. A failed read counts
// as a match: it proves nothing.
func (s *source) matchesStore() bool {
	s.mu.Lock()
	audited, seen := s.audited, s.revision
	s.mu.Unlock()
	var resp *pb.RangeResponse
	err := s.client.handle.Call(s.ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.readRange(ctx, &pb.RangeRequest{
			Key: []byte(s.prefix), RangeEnd: rangeEnd(s.prefix),
			KeysOnly: true, MinModRevision: audited + 1,
		})
		return err
	})
	if err != nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case resp.Header.Revision < seen: // the store was restored from a backup
		return false
	case resp.Count != int64(len(s.revisions)): // Count covers all keys, also those below MinModRevision
		return false
	}
	for _, kv := range resp.Kvs {
		if s.revisions[string(kv.Key)] < kv.ModRevision {
			return false
		}
	}
	s.audited = max(s.audited, resp.Header.Revision)
	return true
}
