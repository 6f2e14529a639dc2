package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// What a handle deletes it takes away itself, see reap. A sweep finds what was left by
// handles that were closed, or crashed, before they came to it. The handles of a namespace
// take turns, so that one of them makes a sweep in ReapAfter, or somewhat less often.

// sweep makes sweeps when it is its turn, until the handle is closed.
func (c *Client) sweep() {
	ctx := c.calls.Context()
	last := int32(-1) // sweep of others that was seen
	for remote.Sleep(ctx, remote.Jittered(c.o.ReapAfter)) {
		r, err := c.readRaw(ctx, c.base, c.layout.swept())
		if err != nil || r.stat == nil {
			continue
		}
		if r.stat.Version != last { // somebody has made one since, or is about to
			last = r.stat.Version
			continue
		}
		stat, err := call(ctx, c.base, func(conn *zk.Conn) (*zk.Stat, error) {
			return conn.Set(c.layout.swept(), []byte(noValue), last)
		})
		if err != nil {
			continue
		}
		last = stat.Version
		s := sweeping{c: c, before: stat.Mtime - c.o.ReapAfter.Milliseconds()}
		if err := s.below(ctx, ""); err != nil && ctx.Err() == nil {
			c.o.Logger.Debug("did not finish a sweep", "error", err)
		}
	}
}

// sweeping is one sweep.
type sweeping struct {
	c      *Client
	before int64 // in the time of the server's clock: what was written later stays
	old    []registry.Key
}

// below takes away what is old below dir.
func (s *sweeping) below(ctx context.Context, dir registry.Key) error {
	if !remote.Sleep(ctx, auditGap) {
		return context.Cause(ctx)
	}
	keys, _, err := s.c.children(ctx, dir)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := s.look(ctx, key); err != nil {
			return err
		}
	}
	s.c.bury(ctx, s.old)
	s.old = nil
	return nil
}

// look looks at the znode of a key, and at what is below it.
func (s *sweeping) look(ctx context.Context, key registry.Key) error {
	if !remote.Sleep(ctx, auditGap) {
		return context.Cause(ctx)
	}
	r, err := s.c.readRaw(ctx, s.c.base, s.c.layout.key(key))
	switch {
	case err != nil:
		return err
	case r.stat == nil:
		return nil
	case r.stat.NumChildren > 0:
		return s.below(ctx, key)
	}
	n, err := decode(key, r.data, r.stat)
	if errors.Is(err, registry.ErrForeign) {
		return nil
	}
	if n.none && r.stat.Mtime <= s.before {
		s.old = append(s.old, key)
		if len(s.old) == reapBatch {
			s.c.bury(ctx, s.old)
			s.old = nil
		}
	}
	return nil
}
