package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Servers have lost events: by faults of theirs, and because one who watches had no right
// for a while to see what happened. So what is watched is compared with the store from time
// to time: which children a directory has, and when each was last written. What differs is
// marked, as by an event.
//
// A turn is one read. The handle gives turns to its feeds, and each feed takes its own in
// its goroutine, between events.

// auditGap is the time between two turns, however much a handle watches.
const auditGap = 500 * time.Millisecond

// audit gives turns, until the handle is closed.
func (c *Client) audit() {
	var last registry.Key
	for remote.Sleep(c.calls.Context(), auditGap) {
		if f := c.dueAfter(last); f != nil {
			last = f.dir
			select {
			case f.turn <- struct{}{}:
			default: // it has not come to take its last one
			}
		}
	}
}

// dueAfter returns the feed whose turn it is after that of a directory, or nil if no audit
// is due.
func (c *Client) dueAfter(last registry.Key) *feed {
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

// audited makes the next audit due.
func (f *feed) audited() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.auditDue = time.Now().Add(remote.Jittered(f.c.o.AuditEvery))
}

// audit is one of a mirror.
type audit struct {
	mirror *mirror
	begun  bool
	keys   []registry.Key // still to be compared
}

// take takes a turn. It reports whether it was the last.
func (a *audit) take(ctx context.Context) (done bool, err error) {
	if !a.begun {
		a.begun = true
		err := a.compareNames(ctx)
		return len(a.keys) == 0, err
	}
	key := a.keys[0]
	a.keys = a.keys[1:]
	return len(a.keys) == 0, a.compare(ctx, key)
}

func (a *audit) compareNames(ctx context.Context) error {
	m := a.mirror
	names, err := call(ctx, m.view.link, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(m.view.c.layout.key(m.dir))
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
		m.missed("")
	}
	return nil
}

func (a *audit) compare(ctx context.Context, key registry.Key) error {
	m := a.mirror
	stat, err := call(ctx, m.view.link, func(conn *zk.Conn) (*zk.Stat, error) {
		_, stat, err := conn.Exists(m.view.c.layout.key(key))
		return stat, err
	})
	if err != nil {
		return translate(err)
	}
	if n := m.nodes[key]; n != nil && n.mzxid != stat.Mzxid {
		m.missed(key)
	}
	return nil
}

// missed marks what differs. If an event has told of that by now it is marked already.
func (m *mirror) missed(child registry.Key) {
	m.mu.Lock()
	told := m.names || m.marked[child]
	m.mu.Unlock()
	if !told {
		m.view.c.o.Logger.Warn("an event was missed", "directory", m.dir, "key", child)
		m.mark(child)
	}
}
