package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// recordCommit caches the versions after a multi that was executed on l, and returns the Rev.
func (m *multiRequest) recordCommit(done []zk.MultiResponse, l *link) registry.Rev {
	rev := registry.Rev{Seq: uint64(l.lastZxid())}
	var deleted []registry.Key
	for i := range done {
		if done[i].Stat != nil {
			rev.Seq = uint64(done[i].Stat.Mzxid)
			break
		}
	}
	m.client.noteSeen(int64(rev.Seq))
	for i := range done {
		set, ok := m.entries[i].(*zk.SetDataRequest)
		if !ok || done[i].Stat == nil {
			continue
		}
		key, ok := m.client.layout.keyAt(set.Path)
		if !ok {
			continue // a session's znode
		}
		if n, err := decode(key, set.Data, done[i].Stat); err == nil {
			m.client.versions.put(key, n, m.reapedCount)
			if n.empty && m.client.options.ReapAfter > 0 {
				m.client.deleted.add(key)
				deleted = append(deleted, key)
			}
		}
	}
	if m.padded && len(deleted) > 0 { // the store is full, so remove the znodes now
		m.client.handle.Go(func() { m.client.reapWithAncestors(m.client.handle.Context(), deleted) })
	}
	for i := range m.txn.Then {
		if o := &m.txn.Then[i]; o.Kind == registry.OpDelete && o.Key.Owned() {
			m.client.versions.drop(o.Key)
		}
	}
	return rev
}

// resolveRefusal determines why entry i was refused. It returns an error if the transaction
// fails, and nil if another attempt may succeed.
func (m *multiRequest) resolveRefusal(ctx context.Context, i int, cause error, l *link) error {
	item := m.items[i]
	if known := translate(cause); backend.IsClassified(known) {
		if errors.Is(known, registry.ErrQuota) && !m.padded && m.isDelete(item) {
			m.padded = true
			return nil
		}
		return known
	}
	if item == guardItem {
		return m.refreshReapedCount(ctx, cause)
	}
	if errors.Is(cause, zk.ErrNoNode) && m.isLayoutEntry(i) {
		if err := m.client.createLayout(ctx); err != nil {
			return backend.NotApplied(err)
		}
		return nil
	}
	var key registry.Key
	if item < len(m.txn.If) {
		c := &m.txn.If[item]
		if c.Kind != registry.CondAbsent {
			m.client.versions.drop(c.Key)
			return registry.Conflict(m.txn, item) // the earlier entries held in this same commit
		}
		key = c.Key
	} else {
		o := &m.txn.Then[item-len(m.txn.If)]
		if o.Kind == registry.OpSet || o.Kind == registry.OpDelete {
			m.client.versions.drop(o.Key)
			return registry.Conflict(m.txn, item)
		}
		key = o.Key
	}
	return m.resolveOccupied(ctx, item, key, cause, l)
}

// isDelete reports whether an item of the transaction is a Delete.
func (m *multiRequest) isDelete(item int) bool {
	return item >= len(m.txn.If) && m.txn.Then[item-len(m.txn.If)].Kind == registry.OpDelete
}

// refreshReapedCount reads the count again after it turned out to be outdated.
func (m *multiRequest) refreshReapedCount(ctx context.Context, cause error) error {
	if errors.Is(cause, zk.ErrNoNode) {
		if err := m.client.createLayout(ctx); err != nil {
			return backend.NotApplied(err)
		}
	}
	if err := m.client.readReapedCount(ctx); err != nil {
		return backend.NotApplied(err)
	}
	return nil
}

// isLayoutEntry reports whether entry i creates a znode that is not a key.
func (m *multiRequest) isLayoutEntry(i int) bool {
	create, ok := m.entries[i].(*zk.CreateRequest)
	if !ok {
		return false
	}
	_, key := m.client.layout.keyAt(create.Path)
	return !key
}

// resolveOccupied determines why the entry failed that creates or checks a key which has to be
// absent.
func (m *multiRequest) resolveOccupied(ctx context.Context, item int, key registry.Key, cause error, l *link) error {
	delete(m.emptyZnodes, key)
	delete(m.missingPaths, m.missingAncestor(m.client.layout.keyPath(key)))
	m.client.versions.drop(key)
	switch {
	case errors.Is(cause, zk.ErrNoChildrenForEphemerals):
		return backend.Foreign(key.Dir(), "it is ephemeral and can have no children")
	case errors.Is(cause, zk.ErrNoNode):
		return m.resolveMissingAncestor(ctx, item, key)
	}
	n, err := m.readAfterRefusal(ctx, key, l)
	switch {
	case errors.Is(err, registry.ErrForeign):
		return m.client.conflictError(ctx, m.txn, item)
	case err != nil:
		return backend.NotApplied(err)
	case n == nil:
		return nil // deleted meanwhile
	case n.empty:
		m.emptyZnodes[key] = cachedZnode{*n, m.reapedCount}
		return nil
	}
	if n.mzxid <= m.sentAfter { // unchanged since before the request, so earlier items held at the same time
		return registry.Conflict(m.txn, item)
	}
	evidence := []registry.Cond{registry.At(key, registry.Rev{Seq: uint64(n.mzxid)})}
	_, err = m.client.firstConflict(ctx, m.txn, item, evidence)
	return err // nil if the key has changed again
}

// readAfterRefusal reads key as of the refusal on l, or later.
func (m *multiRequest) readAfterRefusal(ctx context.Context, key registry.Key, l *link) (n *znode, err error) {
	at := l.lastZxid()
	m.reapedCount = m.client.reapedCount.Load()
	err = m.client.onOneConnection(ctx, m.client.base, func() error {
		if err := m.client.catchUp(ctx, m.client.base, at); err != nil {
			return err
		}
		n, err = m.client.readKey(ctx, m.client.base, key)
		return err
	})
	return n, err
}

// resolveMissingAncestor handles the absence of the znodes above a key. A key that is to be
// created needs them, so they are created. For a key that has to be absent, the topmost missing
// one is recorded: its absence is sufficient.
func (m *multiRequest) resolveMissingAncestor(ctx context.Context, item int, key registry.Key) error {
	path := m.client.layout.keyPath(key)
	if item >= len(m.txn.If) {
		if err := m.client.createPath(ctx, parentPath(path)); err != nil {
			return backend.NotApplied(fmt.Errorf("create the ancestors of %s: %w", key, err))
		}
		return nil
	}
	for {
		above := parentPath(path)
		r, err := m.client.readZnode(ctx, m.client.base, above)
		switch {
		case err != nil:
			return backend.NotApplied(err)
		case r.stat != nil || above == m.client.layout.root:
			if path != m.client.layout.keyPath(key) {
				m.missingPaths[path] = true
			}
			return nil
		}
		path = above
	}
}
