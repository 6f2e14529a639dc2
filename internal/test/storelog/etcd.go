package storelog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// etcdLog follows all keys of a cluster by one watch, from the first revision on.
type etcdLog struct {
	*pending
	client *clientv3.Client
	root   string
	stop   context.CancelFunc
	done   chan struct{}
}

// Etcd reads the log of an etcd cluster whose history has not been compacted. root is the namespace root of the
// registry.
func Etcd(ctx context.Context, endpoints []string, root string, secure *tls.Config) (Log, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, TLS: secure, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("read etcd's log: %w", err)
	}
	// Read the root key, so that an unreachable cluster is an error now.
	if _, err := client.Get(ctx, root); err != nil {
		client.Close()
		return nil, fmt.Errorf("read etcd's log: %w", err)
	}
	watching, stop := context.WithCancel(context.Background())
	l := &etcdLog{pending: newPending(), client: client, root: root, stop: stop, done: make(chan struct{})}
	events := client.Watch(clientv3.WithRequireLeader(watching), "", clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		defer close(l.done)
		l.follow(watching, events)
	}()
	return l, nil
}

// follow reads events. If the watch ends, as it does without a leader, another one begins after the last event.
func (l *etcdLog) follow(ctx context.Context, events clientv3.WatchChan) {
	next := int64(1)
	for {
		for response := range events {
			if response.CompactRevision > 0 {
				l.fail(fmt.Errorf("read etcd's log: compacted to revision %d", response.CompactRevision))
				return
			}
			for _, e := range response.Events {
				next = max(next, e.Kv.ModRevision+1)
			}
			l.take(response.Events)
		}
		select {
		case <-ctx.Done():
			l.fail(ctx.Err())
			return
		case <-time.After(50 * time.Millisecond):
		}
		events = l.client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(next))
	}
}

// take adds the commits of events. Events are in order of revisions, and complete for each.
func (l *etcdLog) take(events []*clientv3.Event) {
	now := time.Now()
	for len(events) > 0 {
		rev := events[0].Kv.ModRevision
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		l.add(uint64(rev), l.commits(uint64(rev), now, events[:n])...)
		events = events[n:]
	}
}

// commits returns the commit of the events of one revision: a transaction, or the begin of a session, or its end
// with its owned keys.
func (l *etcdLog) commits(rev uint64, now time.Time, events []*clientv3.Event) []judge.Commit {
	c := commit(rev, now)
	for _, e := range events {
		name, ok := trimRoot(string(e.Kv.Key), l.root)
		if !ok {
			continue
		}
		if id, ok := strings.CutPrefix(name, ":sessions/"); ok {
			if e.Type == mvccpb.DELETE {
				c.Ended = registry.SessionID(id)
			} else {
				c.Opened = registry.SessionID(id)
			}
			continue
		}
		key, ok := etcdKey(name)
		if !ok {
			continue
		}
		c.Then = append(c.Then, etcdOp(key, e))
	}
	switch {
	case c.Ended != "" || c.Opened != "":
		c.Then = nil // owned keys vanish with their session
	case len(c.Then) == 0:
		return nil
	}
	return []judge.Commit{c}
}

// etcdKey returns the key of a stored name, in which the slash before the last segment is doubled.
func etcdKey(name string) (registry.Key, bool) {
	if name, ok := strings.CutPrefix(name, "/"); ok {
		return registry.Key(name), !strings.HasPrefix(name, ":")
	}
	dir, last, ok := strings.Cut(name, "//")
	return registry.Key(dir + "/" + last), ok && !strings.HasPrefix(name, ":")
}

func etcdOp(key registry.Key, e *clientv3.Event) registry.Op {
	value := userValue(e.Kv.Value)
	switch {
	case e.Type == mvccpb.DELETE:
		return registry.Op{Kind: registry.OpDelete, Key: key}
	case !e.IsCreate():
		return registry.Op{Kind: registry.OpSet, Key: key, Value: value}
	case e.Kv.Lease != 0:
		id := registry.SessionID(fmt.Sprintf("%016x", e.Kv.Lease))
		return registry.Op{Kind: registry.OpCreateOwned, Key: key, Value: value, Session: id}
	}
	return registry.Op{Kind: registry.OpCreate, Key: key, Value: value}
}

// Sync writes a key outside of the namespace and waits until the watch reports it. On a store that is full it takes the revision of a read:
// each one but the first changes a key.
func (l *etcdLog) Sync(ctx context.Context) error {
	return l.reach(ctx, func(ctx context.Context) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // calls have no timeout of their own
		defer cancel()
		put, err := l.client.Put(ctx, "storelog/sync", "")
		if err == nil {
			return uint64(put.Header.Revision), nil
		}
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			return 0, err
		}
		now, err := l.client.Get(ctx, l.root, clientv3.WithCountOnly())
		if err != nil || now.Header.Revision == 1 {
			return 0, err
		}
		return uint64(now.Header.Revision), nil
	})
}

// Close stops reading.
func (l *etcdLog) Close() error {
	l.stop()
	<-l.done
	return l.client.Close()
}
