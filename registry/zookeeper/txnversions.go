package zookeeper

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/registry"
)

// build makes the entries from cached versions and reads the missing ones. stale is the first
// item that can never hold, or -1.
func (m *multiRequest) build(ctx context.Context) (stale int, err error) {
	m.reapedCount = m.client.reapedCount.Load()
	if err := m.learnVersions(ctx); err != nil {
		return 0, err
	}
	return m.assembleEntries(), nil
}

// learnVersions looks up the versions of the keys that are required at a Rev.
func (m *multiRequest) learnVersions(ctx context.Context) error {
	var unknown []registry.Key
	newest := uint64(0)
	for key, rev := range m.requiredRevs() {
		f, ok := m.client.versions.get(key, m.reapedCount)
		if ok && f.hasRev(rev) {
			m.known[key] = f
		} else {
			unknown, newest = append(unknown, key), max(newest, rev.Seq)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return m.client.onOneConnection(ctx, m.client.base, func() error {
		// Only a read that is newer than the Rev proves that the Rev is outdated.
		if err := m.client.catchUp(ctx, m.client.base, int64(min(newest, 1<<63-1))); err != nil {
			return err
		}
		return m.client.readKeys(ctx, m.client.base, unknown, func(key registry.Key, n *znode, err error) error {
			delete(m.known, key)
			switch {
			case errors.Is(err, registry.ErrForeign): // so it is at no Rev
				return nil
			case err != nil:
				return err
			case n != nil:
				f := cachedZnode{*n, m.reapedCount}
				f.value = nil
				m.known[key] = f
			}
			return nil
		})
	})
}
