package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// A handle removes the znodes of the keys that it has deleted, see reap.go. A sweep removes
// those that were left by handles which were closed or crashed before that. The handles of a
// namespace share the work: about once per ReapAfter, one of them makes a sweep.

// sweepLoop makes a sweep whenever this handle is the first to claim it, until the handle is
// closed.
func (c *Client) sweepLoop() {
	ctx := c.handle.Context()
	last := int32(-1) // version of the swept path when last read
	for backend.Sleep(ctx, backend.Jittered(c.options.ReapAfter)) {
		r, err := c.readZnode(ctx, c.base, c.layout.sweptPath())
		if err != nil || r.stat == nil {
			continue
		}
		if r.stat.Version != last { // another handle has made a sweep, or is making one
			last = r.stat.Version
			continue
		}
		stat, err := callOnce(ctx, c.base, func(conn *zk.Conn) (*zk.Stat, error) {
			return conn.Set(c.layout.sweptPath(), []byte(noValue), last)
		})
		if err != nil {
			continue
		}
		last = stat.Version
		s := sweep{client: c, before: stat.Mtime - c.options.ReapAfter.Milliseconds()}
		if err := s.sweepDir(ctx, ""); err != nil && ctx.Err() == nil {
			c.options.Logger.Debug("sweep failed", "error", err)
		}
	}
}

// sweep is one pass over the namespace.
type sweep struct {
	client *Client
	before int64 // by the server's clock: later znodes are not removed
	empty  []registry.Key
}

// sweepDir removes the old znodes below dir.
func (s *sweep) sweepDir(ctx context.Context, dir registry.Key) error {
	if !backend.Sleep(ctx, auditGap) {
		return context.Cause(ctx)
	}
	keys, _, err := s.client.listChildren(ctx, dir)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := s.sweepKey(ctx, key); err != nil {
			return err
		}
	}
	s.client.reapWithAncestors(ctx, s.empty)
	s.empty = nil
	return nil
}

// sweepKey collects the znode of a key if it is old and empty, and sweeps its children.
func (s *sweep) sweepKey(ctx context.Context, key registry.Key) error {
	if !backend.Sleep(ctx, auditGap) {
		return context.Cause(ctx)
	}
	r, err := s.client.readZnode(ctx, s.client.base, s.client.layout.keyPath(key))
	switch {
	case err != nil:
		return err
	case r.stat == nil:
		return nil
	case r.stat.NumChildren > 0:
		return s.sweepDir(ctx, key)
	}
	n, err := decode(key, r.data, r.stat)
	if errors.Is(err, registry.ErrForeign) {
		return nil
	}
	if n.empty && r.stat.Mtime <= s.before {
		s.empty = append(s.empty, key)
		if len(s.empty) == reapBatchSize {
			s.client.reapWithAncestors(ctx, s.empty)
			s.empty = nil
		}
	}
	return nil
}
