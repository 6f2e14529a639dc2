package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// watchConn is the connection that carries all watches of a handle, with the mirrors of the
// watched directories. When the connection breaks it is replaced by a new one without mirrors.
//
// A ZooKeeper watch fires once, and its event contains neither the new value nor its version. A
// mirror therefore marks the path of an event, reads it again, and sets the next watch in the
// same request as the read, so that no change falls in between.
type watchConn struct {
	client *Client
	link   *link

	mu          sync.Mutex
	mirrors     map[registry.Key]*mirror
	idleWatches int // watches of released mirrors; the library cannot remove them from the server
}

// maxIdleWatches is the number of idle watches at the server at which the connection is
// replaced to drop them.
const maxIdleWatches = 10_000

func (c *Client) newWatchConn() (*watchConn, error) {
	w := &watchConn{client: c, mirrors: make(map[registry.Key]*mirror)}
	w.link = newLink(c.completeLinkConfig(linkConfig{timeout: linkTimeout, oneConnection: true, onWatchEvent: w.onWatchEvent}))
	return w, w.link.start()
}

// onWatchEvent marks the path of an event. It must not block.
func (w *watchConn) onWatchEvent(e zk.Event) {
	key, ok := w.client.layout.keyAt(e.Path)
	if !ok {
		return
	}
	if e.Type != zk.EventNodeDataChanged { // the children changed, or the directory itself was created or deleted
		w.markChild(key, "", false)
	}
	if key != "" && e.Type != zk.EventNodeChildrenChanged {
		w.markChild(key.Dir(), key, e.Type == zk.EventNodeDeleted)
	}
}

// markChild marks a child of dir, or with child "" the list of children. deleted means that
// the child was deleted.
func (w *watchConn) markChild(dir, child registry.Key, deleted bool) {
	w.mu.Lock()
	m := w.mirrors[dir]
	w.mu.Unlock()
	if m != nil {
		m.mark(child, deleted)
	}
}

// acquireMirror returns the mirror of a directory, which is created if there is none. A feed that
// has lost its last watcher may still be using the mirror: acquireMirror waits until it ends.
func (w *watchConn) acquireMirror(ctx context.Context, dir registry.Key) (*mirror, error) {
	for {
		m := w.findMirror(dir)
		select {
		case m.held <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if w.activateMirror(m) {
			return m, nil
		}
		<-m.held
	}
}

func (w *watchConn) findMirror(dir registry.Key) *mirror {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.mirrors[dir]
	if m == nil {
		m = &mirror{
			conn: w, dir: dir, held: make(chan struct{}, 1), signal: make(chan struct{}, 1),
			namesMarked: true, marked: make(map[registry.Key]bool), nodes: make(map[registry.Key]*znode),
		}
		w.mirrors[dir] = m
	}
	return m
}

// activateMirror reports false if m was discarded.
func (w *watchConn) activateMirror(m *mirror) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mirrors[m.dir] != m {
		return false
	}
	w.idleWatches -= m.setIdle(false)
	return true
}

// releaseMirror makes a mirror idle. Its watches remain at the server, for the next feed of the
// directory.
func (w *watchConn) releaseMirror(m *mirror) {
	w.mu.Lock()
	w.idleWatches += m.setIdle(true)
	full := w.idleWatches > maxIdleWatches
	w.mu.Unlock()
	<-m.held
	if full {
		w.link.hangUp()
	}
}

// discardMirror makes the next feed of dir start with an empty mirror. When a client loses the
// right to read, the server drops its events and the watches with them, so the mirror may be
// outdated.
func (w *watchConn) discardMirror(dir registry.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mirrors, dir)
}

// mirror is a copy of a directory. Only the feed that acquired it may use it; the marks are
// shared with the event callback.
type mirror struct {
	conn *watchConn
	dir  registry.Key
	held chan struct{} // one slot, a lock with a context: held by the feed that acquired the mirror

	nodes       map[registry.Key]*znode // children by key; nil for skipped ones
	idleWatches int                     // part of watchConn.idleWatches that belongs to this mirror

	signal      chan struct{} // one slot: there is a mark
	mu          sync.Mutex
	namesMarked bool                  // the list of children has to be read
	marked      map[registry.Key]bool // these children have to be read; true: unless the list lacks them
}

// mark marks a child, or with child "" the list of children. deleted means that the child was
// deleted, so that it is read only if it has been created again.
func (m *mirror) mark(child registry.Key, deleted bool) {
	m.mu.Lock()
	if child == "" {
		m.namesMarked = true
	} else {
		m.marked[child] = deleted
	}
	m.mu.Unlock()
	backend.Signal(m.signal)
}

// setIdle makes the mirror idle or active and returns the number of its watches that became
// idle, or that were idle until now.
func (m *mirror) setIdle(idle bool) int {
	if !idle {
		n := m.idleWatches
		m.idleWatches = 0
		return n
	}
	m.idleWatches = len(m.nodes) + 1
	return m.idleWatches
}

// takeMarked returns the marks and clears them. A change after this is either seen by the read
// that follows, or marked by the watch that the same read sets.
func (m *mirror) takeMarked() (names bool, marked map[registry.Key]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names, marked = m.namesMarked, m.marked
	m.namesMarked, m.marked = false, make(map[registry.Key]bool)
	return names, marked
}

// update reads everything that is marked, and calls publish with the changes. Marks set
// meanwhile are left for the next update: writers may change the directory faster than it can
// be read.
//
// The list of children and the changed children are read together, and published before new
// children are read: a change costs one round trip, even if another client adds a child.
func (m *mirror) update(ctx context.Context, publish func(mirrorChange)) error {
	names, marked := m.takeMarked()
	err := m.readListed(ctx, names, marked, func(c mirrorChange) {
		c.until = m.conn.link.lastZxid()
		publish(c)
	})
	if err != nil {
		m.mark("", false) // the next update reads everything again
		for key := range marked {
			m.mark(key, false)
		}
	}
	return err
}

// mirrorChange contains the changed children of a mirror, with nil for those that were deleted
// or skipped. since is a zxid from before the read, at which a deleted child may still have
// existed; until is one from after it, so no delete is newer.
type mirrorChange struct {
	children     map[registry.Key]*znode
	since, until int64
}

func (m *mirror) newChange() mirrorChange {
	return mirrorChange{children: make(map[registry.Key]*znode), since: m.conn.link.lastZxid()}
}

// readListed reads the marked children and, if names is set, the list of children, then those
// children that only the list requires to be read: they are new, or were created again.
func (m *mirror) readListed(ctx context.Context, names bool, marked map[registry.Key]bool, publish func(mirrorChange)) error {
	change := m.newChange()
	var now, listed []registry.Key
	for key, deleted := range marked {
		if !names || !deleted {
			now = append(now, key)
		}
	}
	if !names {
		if err := m.readMarked(ctx, now, change); err != nil {
			return err
		}
		publish(change)
		return nil
	}
	there, err := m.readNames(ctx, now, change)
	if err != nil {
		return err
	}
	for key := range there {
		if _, known := m.nodes[key]; !known || marked[key] {
			listed = append(listed, key)
		}
	}
	for key := range m.nodes {
		if !there[key] {
			delete(m.nodes, key)
			change.children[key] = nil
		}
	}
	publish(change)
	if len(listed) == 0 {
		return nil
	}
	change = m.newChange()
	if err := m.readMarked(ctx, listed, change); err != nil {
		return err
	}
	publish(change)
	return nil
}

// readNames reads the list of children and, at the same time, the children keys.
func (m *mirror) readNames(ctx context.Context, keys []registry.Key, change mirrorChange) (there map[registry.Key]bool, err error) {
	type listing struct {
		names []string
		err   error
	}
	listed := make(chan listing, 1)
	go func() {
		names, err := m.watchChildren(ctx)
		listed <- listing{names, err}
	}()
	err = m.readMarked(ctx, keys, change)
	l := <-listed
	if err = cmp.Or(l.err, err); err != nil {
		return nil, err
	}
	there = make(map[registry.Key]bool)
	for _, key := range keysBelow(m.dir, l.names) {
		there[key] = true
	}
	return there, nil
}

// watchChildren reads and watches the list of children. If the directory does not exist, it
// watches for its creation.
func (m *mirror) watchChildren(ctx context.Context) ([]string, error) {
	path := m.conn.client.layout.keyPath(m.dir)
	for {
		names, err := callOnce(ctx, m.conn.link, func(conn *zk.Conn) ([]string, error) {
			names, _, _, err := conn.ChildrenW(path)
			return names, err
		})
		if !errors.Is(err, zk.ErrNoNode) {
			return names, translate(err)
		}
		there, err := callOnce(ctx, m.conn.link, func(conn *zk.Conn) (bool, error) {
			there, _, _, err := conn.ExistsW(path)
			return there, err
		})
		if err != nil || !there {
			return nil, translate(err)
		}
	}
}

// checkReadable fails if the user may not read the directory.
func (m *mirror) checkReadable(ctx context.Context) error {
	_, err := callOnce(ctx, m.conn.link, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(m.conn.client.layout.keyPath(m.dir))
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return translate(err)
}

func (m *mirror) readMarked(ctx context.Context, keys []registry.Key, change mirrorChange) error {
	changed := change.children
	c := m.conn.client
	var mu sync.Mutex
	return parallel.Each(ctx, readConcurrency, keys, func(ctx context.Context, key registry.Key) error {
		reaped := c.reapedCount.Load()
		r, err := callOnce(ctx, m.conn.link, func(conn *zk.Conn) (rawZnode, error) {
			data, stat, _, err := conn.GetW(c.layout.keyPath(key))
			return rawZnode{data, stat}, err
		})
		var n *znode
		if err == nil {
			n, err = decode(key, r.data, r.stat)
		}
		err = translate(err)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, zk.ErrNoNode):
			delete(m.nodes, key)
			changed[key] = nil
		case isForeign(err):
			c.logForeign(key, err)
			m.nodes[key], changed[key] = nil, nil
		case err != nil:
			return err
		default:
			c.versions.put(key, n, reaped)
			m.nodes[key], changed[key] = n, n
		}
		return nil
	})
}

// connectedWatchConn returns the current watch connection once it is up.
func (c *Client) connectedWatchConn(ctx context.Context) (*watchConn, error) {
	for {
		w, err := c.currentWatchConn()
		if err != nil {
			return nil, err
		}
		if err := w.link.awaitUp(ctx); err == nil || ctx.Err() != nil {
			return w, err
		}
	}
}

// currentWatchConn returns the current watch connection. It starts a new one if there is none
// or it is over.
func (c *Client) currentWatchConn() (*watchConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.handle.Context().Err() != nil { // Close has taken the last watch connection, or will
		return nil, backend.ErrHandleClosed
	}
	if c.watchConn != nil && !c.watchConn.link.isOver() {
		return c.watchConn, nil
	}
	if old := c.watchConn; old != nil && !c.handle.Go(func() { old.link.shutDown(c.handle.Context(), false) }) {
		return nil, backend.ErrHandleClosed
	}
	w, err := c.newWatchConn()
	if err != nil {
		return nil, err
	}
	c.watchConn = w
	return w, nil
}
