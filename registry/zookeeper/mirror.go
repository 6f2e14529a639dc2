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

// view is the connection that watches, and what it has told of the directories that are
// watched. It is thrown away when the connection breaks; the next one begins with nothing.
//
// The server tells once that something has changed, and not what. So a mirror of a
// directory marks what it was told of, reads that again, and watches it by the same read:
// there is no time between the two.
type view struct {
	c    *Client
	link *link

	mu      sync.Mutex
	mirrors map[registry.Key]*mirror
	idle    int // watches of mirrors that nobody follows, which the server cannot be rid of
}

// mostIdle is how many watches may be left over at the server before the view is thrown
// away to be rid of them.
const mostIdle = 10_000

func (c *Client) newView() (*view, error) {
	v := &view{c: c, mirrors: make(map[registry.Key]*mirror)}
	v.link = newLink(c.link(linkConfig{timeout: linkTimeout, once: true, event: v.hear}))
	return v, v.link.start()
}

// hear marks what an event is about. It must not block.
func (v *view) hear(e zk.Event) {
	key, ok := v.c.layout.of(e.Path)
	if !ok {
		return
	}
	if e.Type != zk.EventNodeDataChanged { // children, or the directory itself
		v.mark(key, "")
	}
	if key != "" && e.Type != zk.EventNodeChildrenChanged {
		v.mark(key.Dir(), key)
	}
}

// mark marks a child of dir, or which children there are.
func (v *view) mark(dir, child registry.Key) {
	v.mu.Lock()
	m := v.mirrors[dir]
	v.mu.Unlock()
	if m != nil {
		m.mark(child)
	}
}

// mirror returns that of a directory.
func (v *view) mirror(dir registry.Key) *mirror {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.mirrors[dir]
	if m == nil {
		m = &mirror{view: v, dir: dir, names: true, marked: make(map[registry.Key]bool), nodes: make(map[registry.Key]*node), signal: make(chan struct{}, 1)}
		v.mirrors[dir] = m
	}
	v.idle -= m.leave(false)
	return m
}

// rest lets go of a mirror. What it watches stays watched, for the next who wants it.
func (v *view) rest(m *mirror) {
	v.mu.Lock()
	v.idle += m.leave(true)
	full := v.idle > mostIdle
	v.mu.Unlock()
	if full {
		v.link.hangUp()
	}
}

// forget makes the next who wants the mirror of dir begin with nothing. A server drops the
// events that one who watches has no right to see, and the watch with them.
func (v *view) forget(dir registry.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mirrors, dir)
}

// mirror is what a view knows of a directory. All but the marks is its follower's.
type mirror struct {
	view *view
	dir  registry.Key

	nodes map[registry.Key]*node // znodes below, with nil for those that are left out
	idle  int                    // as counted by the view

	signal chan struct{} // one slot: something is marked
	mu     sync.Mutex
	names  bool                  // it is to be read which children there are
	marked map[registry.Key]bool // these are to be read
}

func (m *mirror) mark(child registry.Key) {
	m.mu.Lock()
	if child == "" {
		m.names = true
	} else {
		m.marked[child] = true
	}
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// leave returns the watches that become idle, or cease to be.
func (m *mirror) leave(idle bool) int {
	if !idle {
		n := m.idle
		m.idle = 0
		return n
	}
	m.idle = len(m.nodes) + 1
	return m.idle
}

// take returns what is marked, and unmarks it: what happens from now on is marked again,
// as it is after the read by which it is watched.
func (m *mirror) take() (names bool, marked map[registry.Key]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names, marked = m.names, m.marked
	m.names, m.marked = false, make(map[registry.Key]bool)
	return names, marked
}

// update reads what is marked. What is marked meanwhile is for the next time: others may
// change the directory faster than it can be read. changed has the znodes that changed, with
// nil for those that are gone or left out, and a zxid before which that was not so.
func (m *mirror) update(ctx context.Context) (changed map[registry.Key]*node, since int64, err error) {
	changed = make(map[registry.Key]*node)
	since = m.view.link.zxid()
	names, marked := m.take()
	err = m.readNames(ctx, names, marked, changed)
	if err == nil {
		err = m.readMarked(ctx, marked, changed)
	}
	if err != nil {
		m.mark("") // the next who wants the mirror reads on
		for key := range marked {
			m.mark(key)
		}
		return nil, 0, err
	}
	return changed, since, nil
}

// readNames reads which children there are, if that is wanted, takes out those that are
// gone, and marks those that are new.
func (m *mirror) readNames(ctx context.Context, wanted bool, marked map[registry.Key]bool, changed map[registry.Key]*node) error {
	if !wanted {
		return nil
	}
	names, err := m.children(ctx)
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

// children reads and watches which children there are. A directory that does not exist is
// watched until it does.
func (m *mirror) children(ctx context.Context) ([]string, error) {
	path := m.view.c.layout.key(m.dir)
	for {
		names, err := call(ctx, m.view.link, func(conn *zk.Conn) ([]string, error) {
			names, _, _, err := conn.ChildrenW(path)
			return names, err
		})
		if !errors.Is(err, zk.ErrNoNode) {
			return names, translate(err)
		}
		there, err := call(ctx, m.view.link, func(conn *zk.Conn) (bool, error) {
			there, _, _, err := conn.ExistsW(path)
			return there, err
		})
		if err != nil || !there {
			return nil, translate(err)
		}
	}
}

// mayBeRead returns an error if the directory must not be read.
func (m *mirror) mayBeRead(ctx context.Context) error {
	_, err := call(ctx, m.view.link, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(m.view.c.layout.key(m.dir))
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return translate(err)
}

func (m *mirror) readMarked(ctx context.Context, marked map[registry.Key]bool, changed map[registry.Key]*node) error {
	keys := make([]registry.Key, 0, len(marked))
	for key := range marked {
		keys = append(keys, key)
	}
	c := m.view.c
	var mu sync.Mutex
	return parallel.Each(ctx, window, keys, func(ctx context.Context, key registry.Key) error {
		reaped := c.reaped.Load()
		r, err := call(ctx, m.view.link, func(conn *zk.Conn) (raw, error) {
			data, stat, _, err := conn.GetW(c.layout.key(key))
			return raw{data, stat}, err
		})
		var n *node
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
		case passedOver(err):
			c.leaveOut(key, err)
			m.nodes[key], changed[key] = nil, nil
		case err != nil:
			return err
		default:
			c.memo.put(key, n, reaped)
			m.nodes[key], changed[key] = n, n
		}
		return nil
	})
}

// watchingView returns the view that is used now, when it is connected.
func (c *Client) watchingView(ctx context.Context) (*view, error) {
	for {
		v, err := c.presentView()
		if err != nil {
			return nil, err
		}
		if err := v.link.await(ctx); err == nil || ctx.Err() != nil {
			return v, err
		}
	}
}

// presentView returns the view that is used now, which is a new one if the last has
// broken.
func (c *Client) presentView() (*view, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.feeds == nil {
		return nil, remote.ErrHandleClosed
	}
	if c.view != nil && !c.view.link.over() {
		return c.view, nil
	}
	if old := c.view; old != nil && !c.calls.Go(func() { old.link.end(c.calls.Context(), false) }) {
		return nil, remote.ErrHandleClosed
	}
	v, err := c.newView()
	if err != nil {
		return nil, err
	}
	c.view = v
	return v, nil
}
