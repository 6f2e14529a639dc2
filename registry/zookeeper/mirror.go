package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
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
		w.markChild(key, "")
	}
	if key != "" && e.Type != zk.EventNodeChildrenChanged {
		w.markChild(key.Dir(), key)
	}
}

// markChild marks a child of dir, or with child "" the list of children.
func (w *watchConn) markChild(dir, child registry.Key) {
	w.mu.Lock()
	m := w.mirrors[dir]
	w.mu.Unlock()
	if m != nil {
		m.mark(child)
	}
}

// acquireMirror returns the mirror of a directory, which is created if there is none.
func (w *watchConn) acquireMirror(dir registry.Key) *mirror {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.mirrors[dir]
	if m == nil {
		m = &mirror{conn: w, dir: dir, namesMarked: true, marked: make(map[registry.Key]bool), nodes: make(map[registry.Key]*znode), signal: make(chan struct{}, 1)}
		w.mirrors[dir] = m
	}
	w.idleWatches -= m.setIdle(false)
	return m
}

// releaseMirror makes a mirror idle. Its watches remain at the server, for the next feed of the
// directory.
func (w *watchConn) releaseMirror(m *mirror) {
	w.mu.Lock()
	w.idleWatches += m.setIdle(true)
	full := w.idleWatches > maxIdleWatches
	w.mu.Unlock()
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

	nodes       map[registry.Key]*znode // children by key; nil for skipped ones
	idleWatches int                     // part of watchConn.idleWatches that belongs to this mirror

	signal      chan struct{} // one slot: there is a mark
	mu          sync.Mutex
	namesMarked bool                  // the list of children has to be read
	marked      map[registry.Key]bool // these children have to be read
}

func (m *mirror) mark(child registry.Key) {
	m.mu.Lock()
	if child == "" {
		m.namesMarked = true
	} else {
		m.marked[child] = true
	}
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
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

// update reads everything that is marked. Marks set meanwhile are left for the next update:
// writers may change the directory faster than it can be read. changed contains the changed
// children, with nil for those that were deleted or skipped. since is a zxid from before the
// read, at which a deleted child may still have existed.
func (m *mirror) update(ctx context.Context) (changed map[registry.Key]*znode, since int64, err error) {
	changed = make(map[registry.Key]*znode)
	since = m.conn.link.lastZxid()
	names, marked := m.takeMarked()
	err = m.readNames(ctx, names, marked, changed)
	if err == nil {
		err = m.readMarked(ctx, marked, changed)
	}
	if err != nil {
		m.mark("") // the next update reads everything again
		for key := range marked {
			m.mark(key)
		}
		return nil, 0, err
	}
	return changed, since, nil
}

// readNames reads the list of children if wanted is set, removes the children that are missing
// from it, and marks the new ones.
func (m *mirror) readNames(ctx context.Context, wanted bool, marked map[registry.Key]bool, changed map[registry.Key]*znode) error {
	if !wanted {
		return nil
	}
	names, err := m.watchChildren(ctx)
	if err != nil {
		return err
	}
	there := make(map[registry.Key]bool)
	for _, key := range keysBelow(m.dir, names) {
		there[key] = true
		if _, known := m.nodes[key]; !known {
			marked[key] = true
		}
	}
	for key := range m.nodes {
		if !there[key] {
			delete(m.nodes, key)
			changed[key] = nil
		}
	}
	for key := range marked {
		if !there[key] {
			delete(marked, key)
		}
	}
	return nil
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

func (m *mirror) readMarked(ctx context.Context, marked map[registry.Key]bool, changed map[registry.Key]*znode) error {
	keys := make([]registry.Key, 0, len(marked))
	for key := range marked {
		keys = append(keys, key)
	}
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
	if c.feeds == nil {
		return nil, remote.ErrHandleClosed
	}
	if c.watchConn != nil && !c.watchConn.link.isOver() {
		return c.watchConn, nil
	}
	if old := c.watchConn; old != nil && !c.calls.Go(func() { old.link.shutDown(c.calls.Context(), false) }) {
		return nil, remote.ErrHandleClosed
	}
	w, err := c.newWatchConn()
	if err != nil {
		return nil, err
	}
	c.watchConn = w
	return w, nil
}
