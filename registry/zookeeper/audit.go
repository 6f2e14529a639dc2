package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// ZooKeeper servers have lost watch events, through bugs and because a watcher had lost the
// right to read for a while. Each watched directory is therefore compared with the store from
// time to time: the names of its children, and when each was last written. A difference is
// marked as if an event had arrived.
//
// The comparison makes one read per step. auditLoop grants the steps, one feed after the other,
// and a feed makes its step in its own goroutine, between two events.

// auditGap is the time between two steps of a handle, however many directories it watches.
const auditGap = 500 * time.Millisecond

// auditLoop grants audit steps until the handle is closed.
func (c *Client) auditLoop() {
	var last registry.Key
	for backend.Sleep(c.handle.Context(), auditGap) {
		if f := c.nextAuditDue(last); f != nil {
			last = f.dir
			select {
			case f.auditTurn <- struct{}{}:
			default: // the feed has not used its last grant
			}
		}
	}
}

// nextAuditDue returns the feed, among those with an audit due, that follows last in the order
// of directories, or nil if no audit is due.
func (c *Client) nextAuditDue(last registry.Key) *feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var first, next *feed
	for dir, f := range c.feeds {
		if now.Before(f.auditDue) {
			continue
		}
		if first == nil || dir < first.dir {
			first = f
		}
		if dir > last && (next == nil || dir < next.dir) {
			next = f
		}
	}
	if next == nil {
		return first
	}
	return next
}

// scheduleAudit sets the time of the feed's next audit.
func (f *feed) scheduleAudit() {
	f.client.mu.Lock()
	defer f.client.mu.Unlock()
	f.auditDue = time.Now().Add(backend.Jittered(f.client.options.AuditEvery))
}

// auditPass is one comparison of a mirror with the store.
type auditPass struct {
	mirror *mirror
	begun  bool
	keys   []registry.Key // not compared yet
}

// step makes one read and compares its result. done reports whether it was the last.
func (a *auditPass) step(ctx context.Context) (done bool, err error) {
	if !a.begun {
		a.begun = true
		err := a.compareNames(ctx)
		return len(a.keys) == 0, err
	}
	key := a.keys[0]
	a.keys = a.keys[1:]
	return len(a.keys) == 0, a.compareKey(ctx, key)
}

func (a *auditPass) compareNames(ctx context.Context) error {
	m := a.mirror
	names, err := callOnce(ctx, m.conn.link, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(m.conn.client.layout.keyPath(m.dir))
		return names, err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return translate(err)
	}
	there := keysBelow(m.dir, names)
	same := len(there) == len(m.nodes)
	for _, key := range there {
		n, known := m.nodes[key]
		same = same && known
		if n != nil {
			a.keys = append(a.keys, key)
		}
	}
	if !same {
		m.markMissed("")
	}
	return nil
}

func (a *auditPass) compareKey(ctx context.Context, key registry.Key) error {
	m := a.mirror
	stat, err := callOnce(ctx, m.conn.link, func(conn *zk.Conn) (*zk.Stat, error) {
		_, stat, err := conn.Exists(m.conn.client.layout.keyPath(key))
		return stat, err
	})
	if err != nil {
		return translate(err)
	}
	if n := m.nodes[key]; n != nil && n.mzxid != stat.Mzxid {
		m.markMissed(key)
	}
	return nil
}

// markMissed marks a difference, unless an event has marked it by now.
func (m *mirror) markMissed(child registry.Key) {
	m.mu.Lock()
	_, marked := m.marked[child]
	marked = marked || m.namesMarked
	m.mu.Unlock()
	if !marked {
		m.conn.client.options.Logger.Warn("audit found a missed event", "dir", m.dir, "key", child)
		m.mark(child, false)
	}
}
